"""Accounts as a part of a manager: made before the loop runs, and kept going beside it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from rota.api.service import AccountParts, Service
from rota.live.accounts.keeper import BudgetKeeper


def with_accounts(service: Service) -> Service:
    """Return the services with budgets; jobs that they hold do not start."""
    budgets = BudgetKeeper(service.control, service.records)
    budgets.take_up()
    return replace(service, accounts=AccountParts(budgets=budgets))


def account_upkeep(service: Service) -> list[Callable[[], Coroutine[Any, Any, None]]]:
    """Return what runs as long as the manager does."""
    return [] if service.accounts is None else [service.accounts.budgets.run]
