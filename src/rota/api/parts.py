"""The parts of a manager of processes that are made before its loop runs, and kept going beside it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from rota.api.accounts.setup import account_upkeep, with_accounts
from rota.api.alerts.setup import alert_upkeep, with_alerts
from rota.api.data.setup import data_upkeep, with_data
from rota.api.proxy.setup import with_proxy
from rota.api.service import Service
from rota.api.sweeps.setup import sweep_upkeep, with_sweeps
from rota.files.alerts.settings import AlertsPart
from rota.files.notify.settings import NotificationsPart
from rota.live.health.disk_guard import DiskGuard
from rota.live.reservations.keeper import ReservationKeeper


def with_parts(
    service: Service, notifications: NotificationsPart, alerts: AlertsPart, proxy_domain: str | None
) -> Service:
    """Return the services with reservations, data, sweeps, accounts, notifications, alerts and the proxy to jobs."""
    made = with_accounts(with_sweeps(with_data(with_reservations(service))), notifications)
    return with_proxy(with_alerts(made, alerts), proxy_domain)


def with_reservations(service: Service) -> Service:
    """Return the services with what keeps nodes for a group in a time."""
    keeper = ReservationKeeper(service.control, service.records)
    keeper.take_up()
    return replace(service, reservations=keeper)


def upkeep_of(service: Service) -> list[Callable[[], Coroutine[Any, Any, None]]]:
    """Return what runs as long as the manager does."""
    guards = [] if service.snapshots is None else [DiskGuard(service.control, service.home).run]
    guards += [] if service.reservations is None else [service.reservations.run]
    parts = (sweep_upkeep(service), data_upkeep(service), account_upkeep(service), alert_upkeep(service))
    return [*guards, *(each for part in parts for each in part)]
