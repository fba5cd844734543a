"""What every route works with, and who is asking."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fastapi import Request

from rota.api.access import Access, Principal
from rota.live.estimates.learning import Learning
from rota.live.loop.boot import Scheduling
from rota.live.loop.control import Control
from rota.live.loop.requests import Requests
from rota.live.views.overview import ManagerOverview
from rota.store.records import Records


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The manager's parts."""

    control: Control
    requests: Requests
    records: Records
    access: Access
    home: Path
    scheduling: Scheduling
    lookout: ManagerOverview
    limits: str
    """How tasks' limits are kept, in words."""
    learning: Learning | None = None
    """What past jobs teach, where what they used is known."""


def service(request: Request) -> Service:
    """The manager that a request is for."""
    found = request.app.state.service
    assert isinstance(found, Service)
    return found


async def principal(request: Request) -> Principal:
    """Who is asking; refuses who may not ask at all."""
    return service(request).access.who(request)
