"""Accounts and notifications as a part of a manager: made before the loop runs, and kept going beside it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from rota.api.service import AccountParts, Service
from rota.drivers.local.gpu.job_energy import own_energy_j
from rota.files.notify.settings import NotificationsPart
from rota.live.accounts.keeper import BudgetKeeper
from rota.live.notify.job_notices import JobNotices
from rota.live.notify.sender import Sender


def with_accounts(service: Service, notifications: NotificationsPart) -> Service:
    """Return the services with budgets, whose jobs do not start, and with messages about jobs and budgets."""
    ledger = service.control.ledger
    ledger.notices = JobNotices(service.control.state).of
    ledger.energy_j = lambda job_id: own_energy_j(service.home, job_id)
    sender = Sender(service.control, service.records, notifications)
    budgets = BudgetKeeper(service.control, service.records, notifications.budgets)
    budgets.take_up()
    return replace(service, accounts=AccountParts(budgets=budgets, sender=sender))


def account_upkeep(service: Service) -> list[Callable[[], Coroutine[Any, Any, None]]]:
    """Return what runs as long as the manager does."""
    return [] if service.accounts is None else [service.accounts.budgets.run, service.accounts.sender.run]
