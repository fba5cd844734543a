"""Alerts as a part of a manager of processes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

from rota.api.alerts.samples import read_samples
from rota.api.service import Service
from rota.files.alerts.settings import AlertsPart
from rota.live.alerts.keeper import AlertKeeper


def with_alerts(service: Service, part: AlertsPart) -> Service:
    """Return the services with what keeps the alerts."""
    reader = partial(read_samples, service)
    return replace(service, alerts=AlertKeeper(service.control, service.records, service.audit, part, reader))


def alert_upkeep(service: Service) -> list[Callable[[], Coroutine[Any, Any, None]]]:
    """Return what runs as long as the manager does."""
    return [] if service.alerts is None else [service.alerts.run]
