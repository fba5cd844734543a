"""What needs a visitor: failures of the last day, held jobs, long waits, and alerts and budgets that are about it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rota.api.alerts.routes import may_see
from rota.api.wire import job_out
from rota.live.alerts.states import AlertState
from rota.store import clock
from rota.web import words
from rota.web.page_context import PageContext

DAY_S = 86400.0
LONG_WAIT_S = 3600.0
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Concern:
    """Something that the visitor should look at."""

    state: str
    title: str
    why: str
    target: str
    at_s: float | None
    """Since when; None for what holds now."""
    label: str = ""
    """What stands before it; by default the state."""


async def found_concerns(
    context: PageContext, active: Sequence[Any], failed: Sequence[Any], sweeps: Sequence[Json]
) -> list[Concern]:
    """Return what needs the visitor, the latest first, given its jobs and sweeps. Trials count with their sweep."""
    held = [row.id for row in active if row.state == "held"]
    asked = [*held, *(row.id for row in failed)]
    trials = await asyncio.to_thread(context.service.records.sweeps.of_jobs, asked)
    since_s = clock.now_s() - DAY_S
    found = [
        Concern(
            state="failed",
            title=row.name,
            why=row.message or f"exit code {row.exit_code}",
            target=f"/jobs/{row.id}",
            at_s=row.ended_s,
        )
        for row in failed
        if row.ended_s is not None and row.ended_s > since_s and row.id not in trials
    ]
    found += _of_active(context, active, trials)
    found += _of_sweeps(sweeps, since_s)
    found += _of_alerts(context)
    found += _of_budgets(context)
    return sorted(found, key=lambda each: -math.inf if each.at_s is None else -each.at_s)


def _of_active(context: PageContext, active: Sequence[Any], trials: dict[str, str]) -> Iterator[Concern]:
    long_ago_s = clock.now_s() - LONG_WAIT_S
    for row in active:
        reason = ""
        if row.state == "held" and row.id not in trials:
            reason = row.message or "release it, and it becomes eligible to start"
            reason = f"held: {reason}"
        elif row.state == "waiting" and row.submitted_s < long_ago_s:
            waits = job_out(row, context.service.control)["reason"]
            reason = waits["sentence"] if waits else "waits for devices"
        if reason:
            yield Concern(state=row.state, title=row.name, why=reason, target=f"/jobs/{row.id}", at_s=row.submitted_s)


def _of_sweeps(sweeps: Sequence[Json], since_s: float) -> Iterator[Concern]:
    for sweep in sweeps:
        ended_s, failed = sweep["ended_s"], sweep["states"]["failed"]
        if (ended_s is not None and ended_s <= since_s) or not (failed or sweep["state"] == "failed"):
            continue
        why = f"{words.plural(failed, 'trial')} of {sweep['begun']} failed" if failed else sweep["why"]
        target, at_s = f"/sweeps/{sweep['id']}", ended_s or sweep["created_s"]
        yield Concern(state="failed", title=f"sweep {sweep['name']}", why=why, target=target, at_s=at_s)


def _of_alerts(context: PageContext) -> Iterator[Concern]:
    """Firing alerts about the visitor's jobs, and for admins all that no one has taken."""
    keeper, principal = context.service.alerts, context.principal()
    for alert in [] if keeper is None else keeper.all():
        is_mine = dict(alert.labels).get("user") == principal.name and may_see(principal, alert)
        if alert.state is AlertState.FIRING and not alert.acknowledged_by and (is_mine or context.is_admin):
            yield Concern(
                state="waiting", title=alert.rule, why=alert.text, target="/alerts", at_s=alert.since_s, label="alert"
            )


def _of_budgets(context: PageContext) -> Iterator[Concern]:
    """Budgets of which the visitor's jobs use, from the first warning on."""
    accounts, principal = context.service.accounts, context.principal()
    for use in [] if accounts is None else accounts.budgets.all():
        budget = use.budget
        is_mine = budget.user in (None, principal.name) and principal.tenants is not None
        least = min((*budget.warn, 1.0)) * budget.limit
        if is_mine and principal.may_see(budget.tenant) and use.used >= least:
            state = "failed" if use.is_reached else "waiting"
            why = budget.words(use.used).partition(": ")[2]
            yield Concern(state=state, title=budget.name, why=why, target="/usage", at_s=None, label="budget")
