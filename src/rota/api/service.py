"""The services that every route uses, and the authentication of callers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fastapi import Request

from rota.api.access import Access, Principal
from rota.api.limits.values import Limits
from rota.live.estimates.learning import Learning
from rota.live.loop.boot import Scheduling
from rota.live.loop.control import Control
from rota.live.loop.requests import Requests
from rota.live.views.overview import ManagerOverview
from rota.store.records import Records


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The parts of a manager."""

    control: Control
    requests: Requests
    records: Records
    access: Access
    home: Path
    scheduling: Scheduling
    lookout: ManagerOverview
    limits: str
    """How the limits of tasks are enforced, for people."""
    call_limits: Limits = field(default_factory=Limits)
    """What each caller may take."""
    learning: Learning | None = None
    """Estimates from past jobs, if their usage is recorded."""


def service(request: Request) -> Service:
    """Return the services of the request's manager."""
    found = request.app.state.service
    assert isinstance(found, Service)
    return found


async def principal(request: Request) -> Principal:
    """Authenticate the caller of a request."""
    return service(request).access.authenticate(request)
