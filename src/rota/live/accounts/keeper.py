"""Watches the budgets, and holds or stops jobs of those that are used up, with the reason.

New jobs are held at their acceptance, waiting ones are held, and with `stop` running ones are sent back to the queue
(saving their work if they can) and held. All of it ends when the budget is raised, removed, or begins again. A look
adds what running jobs have used to what is written. When the next limit is reached follows from what runs, so that no
budget is passed by more than a moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rota.core.messages.events import Event, JobArrived, JobHeld, JobReleased, JobRequeued
from rota.core.model.job import JobId, JobState
from rota.core.state.job_record import LiveJob
from rota.live.accounts.budget import AtLimit, UsageBudget, decode_budget
from rota.live.accounts.ledger import project_of
from rota.live.accounts.prices import Prices, prices_of
from rota.live.accounts.report import open_rows
from rota.live.intake.audit_entry import Asker, audit_entry
from rota.live.intake.requests import Conflict, NotFound
from rota.live.loop.control import Control
from rota.live.loop.entry import LoopEntry, News
from rota.live.loop.record import dump
from rota.live.notify.job_notices import message
from rota.store import clock
from rota.store.accounts.usage import UsageRow
from rota.store.records import Records

log = logging.getLogger("rota.live")
KEY = "budgets"
"""Under which name the records keep the budgets, and of which it was told that they are used up."""
LEAST_S, MOST_S = 0.25, 30.0
"""Between two looks."""
BUDGETS = Asker(name="budgets")


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetUse:
    """A budget and what is used of it."""

    budget: UsageBudget
    used: float
    is_reached: bool


class BudgetKeeper:
    """The budgets of a manager."""

    def __init__(self, control: Control, records: Records, channels: Sequence[str] = ()) -> None:
        """`channels` are told of budgets."""
        self._control = control
        self._channels = channels
        self._records = records
        stored: dict[str, Any] = records.setting(KEY) or {"budgets": [], "told": {}}
        self._budgets = {each["name"]: decode_budget(each) for each in stored["budgets"]}
        self._told: dict[str, list[float]] = stored["told"]
        """By budget: when its period began, and the parts of it of which was told."""
        self._reached: dict[str, str] = {}
        """Used-up budgets that hold jobs, with the reason."""
        self._worded: dict[str, UsageBudget] = {}
        """What these budgets were when the reason was written."""
        self._holds = {JobId(job_id): budget for job_id, (budget, _) in records.holds.all().items()}
        self._uses: dict[str, BudgetUse] = {}
        self._wake = asyncio.Event()
        self._changing = asyncio.Lock()
        control.gates.append(self._gate)
        control.listen(self._noticed)

    def take_up(self) -> None:
        """Look before the loop runs, so that nothing starts that a budget holds."""
        if self._budgets or self._holds:
            self._judge(self._stored(list(self._budgets.values())), prices_of(self._records))

    # -- requests --------------------------------------------------------------------------------

    def all(self) -> list[BudgetUse]:
        """Return the budgets with what is used of them."""
        return [
            self._uses.get(name, BudgetUse(budget=budget, used=0.0, is_reached=False))
            for name, budget in sorted(self._budgets.items())
        ]

    async def put(self, budget: UsageBudget, asker: Asker) -> BudgetUse:
        """Add or change a budget; what follows has been ordered when this returns."""
        async with self._changing:
            before = self._budgets.get(budget.name)
            after = {**self._budgets, budget.name: budget}
            told = {name: parts for name, parts in self._told.items() if name != budget.name}
            words = budget.words(0.0).split(": ", 1)[0] + f", {budget.limit:g}, at the limit {budget.at_limit.value}"
            await self._write(
                after, told, audit_entry(asker, "budget" if before is None else "change-budget", budget.name, words)
            )
            await self._look()
        return self._uses[budget.name]

    async def remove(self, name: str, asker: Asker) -> None:
        """Remove a budget; jobs that only it held are released."""
        async with self._changing:
            if name not in self._budgets:
                raise NotFound(f"there is no budget {name[:64]!r}")
            after = {key: budget for key, budget in self._budgets.items() if key != name}
            told = {key: parts for key, parts in self._told.items() if key != name}
            await self._write(after, told, audit_entry(asker, "remove-budget", name))
            await self._look()

    async def _write(
        self, budgets: dict[str, UsageBudget], told: dict[str, list[float]], audit: dict[str, Any]
    ) -> None:
        await self._control.apply(LoopEntry([], settings={KEY: _encoded(budgets, told)}, audit=[audit]))
        self._budgets, self._told = budgets, told

    # -- what budgets keep from starting -----------------------------------------------------------

    def _holder(self, live_or_job: Any, owner: str) -> str | None:
        """Return the used-up budget that holds a job, if one does; one without devices uses nothing of a budget."""
        job = live_or_job.job if isinstance(live_or_job, LiveJob) else live_or_job
        if not job.gpu_milli:
            return None
        for name in self._reached:
            budget = self._budgets.get(name)
            if budget is not None and budget.has(job.tenant, owner, project_of(job.labels)):
                return name
        return None

    def _gate(self, entry: LoopEntry) -> None:
        """Hold new jobs of a used-up budget, and refuse to release one."""
        if not self._reached:
            return
        events: list[Event] = []
        for event in entry.events:
            if isinstance(event, JobArrived) and not event.held:
                owner = entry.records[event.job.id].owner
                if (name := self._holder(event.job, owner)) is not None:
                    event = replace(event, held=True)
                    self._note_hold(event.job.id, name, entry)
                    entry.records[event.job.id].message = self._reached[name]
            elif isinstance(event, JobReleased):
                live, record = self._control.state.jobs.get(event.job_id), self._control.kept.get(event.job_id)
                if live is not None and record is not None and (name := self._holder(live, record.owner)) is not None:
                    if entry.done is not None:
                        raise Conflict(f"job {event.job_id} can't be released: {self._reached[name]}")
                    self._note_hold(event.job_id, name, entry)  # as of a promoted trial: the budget lets it go on
                    record.message = self._reached[name]
                    event = JobHeld(event.job_id)
            events.append(event)
        entry.events[:] = events

    def _note_hold(self, job_id: JobId, name: str, entry: LoopEntry) -> None:
        self._holds[job_id] = name
        entry.holds[job_id] = {"budget": name, "why": self._reached[name]}

    # -- looks -----------------------------------------------------------------------------------

    def _noticed(self, news: Sequence[News]) -> None:
        gone = [each.job_id for each in news if each.job_id in self._holds and each.state in _ENDED]
        if gone:
            for job_id in gone:
                del self._holds[job_id]
            self._control.happened(LoopEntry([], holds=dict.fromkeys(gone)))
        if self._budgets:
            self._wake.set()

    async def run(self) -> None:
        """Look whenever a limit may have been reached, until cancelled."""
        while True:
            wait_s = self._next_s() if self._budgets else None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), wait_s)
            self._wake.clear()
            async with self._changing:
                await self._look()
            await asyncio.sleep(LEAST_S)

    def _next_s(self) -> float:
        """Return in how many seconds the next limit may be reached."""
        found = MOST_S
        for name, budget in self._budgets.items():
            use = self._uses.get(name)
            rate = self._rate(budget)
            if use is None:
                return LEAST_S
            for part in (*budget.warn, 1.0):
                left = budget.limit * part - use.used
                if left > 0 and rate:
                    found = min(found, left / rate)
        return max(found, LEAST_S)

    def _rate(self, budget: UsageBudget) -> float:
        """Return what running jobs use of a budget in a second."""
        prices = prices_of(self._records) if budget.cost is not None else Prices()
        found = 0.0
        for job_id, live in self._control.state.jobs.items():
            record = self._control.kept.get(job_id)
            if live.run_since_s is None or record is None:
                continue
            if budget.has(live.job.tenant, record.owner, project_of(live.job.labels)):
                dearest = max(
                    (price for each in prices.lists[-1:] for price in each.per_gpu_hour.values()), default=0.0
                )
                found += live.run_milli / 1000 / 3600 * (1.0 if budget.cost is None else dearest)
        return found

    def _stored(self, budgets: Sequence[UsageBudget]) -> dict[str, list[UsageRow]]:
        now_s = clock.shown_s(clock.now_s())
        return {
            each.name: [
                row
                for row in self._records.usage.between(
                    each.begins_s(now_s), now_s + 1, tenants=[each.tenant], owner=each.user
                )
                if each.has(row.tenant, row.owner, row.project)
            ]
            for each in budgets
        }

    async def _look(self) -> None:
        if not self._budgets and not self._holds and not self._reached:
            return
        stored = await asyncio.to_thread(self._stored, list(self._budgets.values()))
        prices = await asyncio.to_thread(prices_of, self._records)
        self._judge(stored, prices)

    def _judge(self, stored: dict[str, list[UsageRow]], prices: Prices) -> None:
        """Compare what is used with the limits, and do what follows.

        What was written is read before what was not: a job that ends in between counts later, never twice.
        """
        now_s = clock.shown_s(clock.now_s())
        unwritten = open_rows(self._control)
        entry = LoopEntry([])
        reached: dict[str, str] = {}
        for name, budget in self._budgets.items():
            begins_s = budget.begins_s(now_s)
            own = [
                row for row in unwritten if row.hour_s >= begins_s and budget.has(row.tenant, row.owner, row.project)
            ]
            used = budget.used([*stored.get(name, ()), *own], prices)
            is_reached = used >= budget.limit
            self._uses[name] = BudgetUse(budget=budget, used=used, is_reached=is_reached)
            if is_reached and budget.at_limit is not AtLimit.WARN:
                reached[name] = f"{budget.words(used, prices.currency)}; an admin can raise it"
            self._tell(budget, used, begins_s, prices.currency, entry)
        for name in [name for name in self._uses if name not in self._budgets]:
            del self._uses[name]
        same = {name for name in reached if self._worded.get(name) == self._budgets[name]}
        self._reached = {name: self._reached[name] if name in same else why for name, why in reached.items()}
        self._worded = {name: self._budgets[name] for name in reached}
        self._act(entry)
        if entry.events or entry.holds or entry.settings:
            self._control.happened(entry)

    def _tell(self, budget: UsageBudget, used: float, begins_s: float, currency: str, entry: LoopEntry) -> None:
        """Warn once in a period of each part that is used."""
        known = self._told.get(budget.name, [])
        if not known or known[0] != begins_s:
            known = [begins_s]
        new = [part for part in (*budget.warn, 1.0) if used >= part * budget.limit and part not in known[1:]]
        if not new:
            return
        self._told = {**self._told, budget.name: [*known, *new]}
        words = budget.words(used, currency)
        log.warning("budget", extra={"budget": budget.name, "why": words})
        entry.settings[KEY] = _encoded(self._budgets, self._told)
        what = "budget-reached" if 1.0 in new else "budget-warning"
        entry.audit.append(audit_entry(BUDGETS, what, budget.name, words))
        self._announce(budget, max(new), words, begins_s, entry)

    def _announce(self, budget: UsageBudget, part: float, words: str, begins_s: float, entry: LoopEntry) -> None:
        """Add messages about a budget."""
        title = f"Budget {budget.name} is used up" if part >= 1 else f"Budget {budget.name}: {part:.0%} used"
        for channel in self._channels:
            key = f"budget/{budget.name}/{begins_s:.0f}/{part:g}/{budget.limit:g}"
            entry.messages.append(message(key, channel, budget.tenant, "", title, words, event="budget", part=part))

    def _act(self, entry: LoopEntry) -> None:
        """Bring all jobs to where the budgets want them."""
        for job_id, live in self._control.state.jobs.items():
            record = self._control.kept.get(job_id)
            if record is None or live.state.is_final:
                continue
            name = self._holder(live, record.owner) if self._reached else None
            if name is not None:
                self._hold(live, name, entry)
            elif job_id in self._holds:
                self._let_go(live, entry)

    def _hold(self, live: LiveJob, name: str, entry: LoopEntry) -> None:
        """Hold a job, or stop and hold it; nothing if it is there."""
        job_id = live.job.id
        if live.state is JobState.HELD:
            if job_id not in self._holds or self._control.kept[job_id].message == self._reached[name]:
                return
            entry.events.append(JobHeld(job_id))  # for another reason than before: the budget has changed
        elif live.state is JobState.WAITING and not live.is_leaving:
            entry.events.append(JobHeld(job_id))
        elif self._budgets[name].at_limit is not AtLimit.STOP:
            return
        elif job_id in self._holds:  # it is being stopped already, or was when the manager was killed
            if live.is_leaving:
                self._control.hold_when_stopped(job_id)
                return
            self._stop(live, entry)
        else:
            self._stop(live, entry)
        self._control.kept[job_id].message = self._reached[name]
        self._note_hold(job_id, name, entry)

    def _stop(self, live: LiveJob, entry: LoopEntry) -> None:
        self._control.hold_when_stopped(live.job.id)
        if not live.is_leaving:
            entry.events.append(JobRequeued(live.job.id))
            entry.audit.append(audit_entry(BUDGETS, "requeue", live.job.id, "its budget is used up"))

    def _let_go(self, live: LiveJob, entry: LoopEntry) -> None:
        """Release a job that no budget holds any more."""
        job_id = live.job.id
        del self._holds[job_id]
        entry.holds[job_id] = None
        self._control.hold_when_stopped(job_id, hold=False)
        self._control.kept[job_id].message = ""
        if live.state is JobState.HELD:
            entry.events.append(JobReleased(job_id))


_ENDED = frozenset({"succeeded", "failed", "cancelled"})


def _encoded(budgets: dict[str, UsageBudget], told: dict[str, list[float]]) -> str:
    return dump({"budgets": [budget.encode() for budget in budgets.values()], "told": told})
