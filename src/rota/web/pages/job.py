"""One job: its state and reason, timeline, placement, progress, resource usage and output."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

from nicegui import background_tasks, html, ui

from rota.api.jobs import visible
from rota.api.wire import job_out
from rota.core.model.job import JobId
from rota.drivers.local.task_usage import use_now
from rota.forecast.value import Forecast, NoForecast, TimeRange
from rota.live.health.failure_watch import verdicts_of
from rota.live.intake.requests import NotFound
from rota.live.loop.record import state_text
from rota.live.views.compare import compared
from rota.live.views.job_timeline import TimelineEvent, life_of
from rota.store import clock
from rota.store.data.artefacts import NoArtefact, list_artefacts
from rota.store.data.preparing import preparing
from rota.store.jobs import FINAL
from rota.store.run_folder import attempt_folder, curve, progress, usage
from rota.web import words
from rota.web.actions import act_on_job
from rota.web.draft import text_of
from rota.web.page_context import PageContext
from rota.web.parts.basics import button, card, empty, set_text
from rota.web.parts.charts import chart, over_time
from rota.web.parts.compared import show_compared
from rota.web.parts.files import show_files
from rota.web.parts.gpus import JobGpus
from rota.web.parts.job_pages import JobPages
from rota.web.parts.log import LogView
from rota.web.parts.map import ClusterMap
from rota.web.parts.meters import Meters
from rota.web.parts.terminal import TerminalCard
from rota.web.parts.timeline import show_timeline
from rota.web.topology import OTHER, holders_of, tree

FORECAST_EVERY_S = 10.0
FORECAST_PAUSE = 20.0
"""The pause after a forecast, as a multiple of the time that it took."""
MAX_NODES = 64
WAITS = frozenset({"waiting", "suspended", "preempted"})
"""States of a job that contends for devices."""


async def build(context: PageContext) -> None:
    """Build the page, or state that there is no such job."""
    job_id = str(context.request.path_params["job_id"])[:64]
    try:
        row = await visible(context.service, context.principal(), job_id)
    except NotFound:
        html.h1("No such job")
        empty(f"Job {job_id} does not exist, or you may not see it.", "Old jobs are deleted after a while.")
        return
    page = JobPage(context, row)
    await page.update()
    context.follow(page.update, about=lambda news: news.job_id == job_id, every_s=2.0)


class JobPage:
    """The elements of the page that change."""

    def __init__(self, context: PageContext, row: Any) -> None:
        self._context = context
        self._row = row
        self._id = JobId(row.id)
        self._version = -1
        self._expected: Forecast | None = None
        self._forecasting: asyncio.Task[None] | None = None
        self._comparing: asyncio.Task[None] | None = None
        self._next_forecast_s = 0.0
        self._head(row)
        with html.div().classes("grid"):
            with card("Status"):
                self._status = html.div().classes("stack")
            with card("Resources", "used and requested"):
                self._meters = Meters(row)
                self._compared = html.div().classes("stack")
            with card("Timeline", wide=True):
                self._timeline = html.div().classes("stack")
            with card("Placement", "devices of this job are coloured"):
                self._placement = html.div().classes("stack")
                self._map: ClusterMap | None = None
            with card("Progress", "reported by its first task"):
                self._progress = html.div().classes("muted")
                self._curve = chart({}, "Metrics reported by the job, by step", small=True)
            is_own = context.principal().may_act_on(row.tenant, row.owner)
            self._pages = JobPages(context.service, self._id) if is_own and context.service.proxy else None
            self._gpus: JobGpus | None = None
            if context.service.gpus is not None:
                with card("GPUs", "utilisation, memory, power and energy", wide=True):
                    self._gpus = JobGpus()
            self._terminal = TerminalCard(self._id) if is_own and context.service.has_sessions else None
            with card("Output", wide=True):
                with html.div().classes("filters"):
                    self._task = ui.select({0: "Task 0"}, value=0, on_change=self._watch)
                    self._attempt = ui.select({0: "Latest attempt"}, value=0, on_change=self._watch)
                    self._task.props('outlined dense options-dense aria-label="Task"').classes("filter")
                    self._attempt.props('outlined dense options-dense aria-label="Attempt"').classes("filter")
                self._log = LogView("No output yet")
            self._files: Any = None
            if is_own:
                with card("Files", "written to $ROTA_RUN_DIR", wide=True):
                    self._files = html.div().classes("stack")
            with card("Job file", wide=True):
                spec = job_out(row, context.service.control, whole=True, shows_env=is_own)["spec"]
                self._origin: dict[str, Any] | None = spec.get("snapshot")
                html.pre(text_of(spec)).classes("code").props('tabindex=0 role=region aria-label="Job file"')

    def _head(self, row: Any) -> None:
        with html.header().classes("page-head"):
            with html.div():
                with html.div().classes("title-row"):
                    html.h1(row.name)
                    self._chip = html.span()
                about = f"Job {row.id} · tenant {row.tenant}" + (f" · submitted by {row.owner}" if row.owner else "")
                html.p(about).classes("muted")
            with html.div().classes("page-actions"):
                self._buttons: dict[str, ui.button] = {}
                if not self._context.principal().may_change(row.tenant):
                    return
                button("Clone", "content_copy").on_click(lambda: ui.navigate.to(f"/submit?clone={row.id}"))
                if not self._context.principal().may_act_on(row.tenant, row.owner):
                    return
                for action, text, icon in (
                    ("release", "Release", "play_arrow"),
                    ("hold", "Hold", "pause"),
                    ("cancel", "Cancel", "cancel"),
                ):
                    self._buttons[action] = button(text, icon, grave=action == "cancel")
                    self._buttons[action].on_click(lambda action=action: self._act(action))

    async def _act(self, action: str) -> None:
        if await act_on_job(self._context, self._row, action):
            await self.update()

    async def update(self) -> None:
        """Show the current state of the job."""
        self._row = row = await visible(self._context.service, self._context.principal(), self._id)
        home = self._context.service.home
        use = await asyncio.to_thread(use_now, home, self._id, row.attempt) if row.state not in FINAL else None
        used = await asyncio.to_thread(usage, home, self._id, row.attempt)
        self._update_forecast()
        self._show_state()
        self._meters.show(use, used)
        self._show_placement()
        await self._show_progress()
        if self._gpus is not None and self._context.service.gpus is not None:
            self._gpus.show(self._context.service.gpus.job_report(self._id))
        if self._terminal is not None:
            self._terminal.show(row)
        if self._pages is not None:
            await self._pages.show(row)
        if row.version != self._version:
            self._version = row.version
            life = await asyncio.to_thread(life_of, self._context.service.records, row.id, row.submitted_s, row.ended_s)
            self._show_timeline(life)
            self._offer_logs()
            await self._show_files()
            self._comparing = background_tasks.create(self._compare())

    async def _show_files(self) -> None:
        if self._files is None:
            return
        with contextlib.suppress(NoArtefact):
            found = await asyncio.to_thread(list_artefacts, self._context.service.home, self._id)
            self._files.clear()
            with self._files:
                show_files(self._id, found, self._origin)

    async def _compare(self) -> None:
        """Show request, estimate and usage; runs in the background, as a model may have to be fitted first."""
        service = self._context.service
        lines = await compared(self._row, service.home, service.learning, service.defaults)
        self._compared.clear()
        with self._compared:
            show_compared(lines)

    def _update_forecast(self) -> None:
        """Forecast the start of a waiting job in the background, as that takes a simulation."""
        if self._row.state not in WAITS:
            self._expected = None
        elif (self._forecasting is None or self._forecasting.done()) and time.monotonic() > self._next_forecast_s:
            self._forecasting = background_tasks.create(self._forecast())

    async def _forecast(self) -> None:
        begun_s = time.monotonic()
        found = await self._context.service.requests.foresee(self._id, self._context.principal().name)
        if self._expected is None or found.reason is not NoForecast.COMPUTING:
            self._expected = found
        now_s = time.monotonic()
        self._next_forecast_s = now_s + max(FORECAST_EVERY_S, FORECAST_PAUSE * (now_s - begun_s))

    def _show_state(self) -> None:
        row = self._row
        self._chip.classes(replace=f"chip chip-{row.state}")
        set_text(self._chip, state_text(row.state))
        for action, shown in (
            ("release", row.state == "held"),
            ("hold", row.state in WAITS),
            ("cancel", row.state not in FINAL),
        ):
            if action in self._buttons:
                self._buttons[action].set_visibility(shown)
        reason = self._context.service.control.explain(self._id)
        self._status.clear()
        with self._status:
            if reason is not None:
                html.p(_sentence(reason.sentence())).classes("reason").props('data-testid="reason"')
            elif prepared := self._preparation():
                html.p(_sentence(prepared)).classes("reason").props('data-testid="reason"')
            elif row.message:
                html.p(_sentence(row.message)).classes("reason")
            elif (standing := self._standing()) is not None:
                html.p(standing).classes("reason")
            for line in _verdict(self._context.service.home, self._id):
                html.p(line).classes("muted").props('data-testid="verdict"')
            if self._expected is not None:
                html.p(_expectation(self._expected)).props('data-testid="expected"')
            elif self._forecasting is not None and not self._forecasting.done():
                html.p("Estimating the start time …").classes("muted")
            with html.dl().classes("facts"):
                for name, value in self._facts():
                    html.dt(name)
                    html.dd(value)

    def _preparation(self) -> str:
        """Return which data sets are fetched before it runs, and how far that is."""
        if self._row.state != "starting":
            return ""
        return preparing(self._context.service.home, self._id, self._row.attempt)

    def _standing(self) -> str | None:
        """Return where the job runs, or that it succeeded; None in other states."""
        live = self._context.service.control.state.jobs.get(self._id)
        if self._row.state == "succeeded":
            return "Succeeded."
        if live is None or not live.held:
            return None
        nodes = self._context.service.control.state.inventory.nodes
        names = list(dict.fromkeys(str(nodes[slot.node].node.id) for slot in live.held))
        where = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        return f"Running for {words.duration(live.run_s(clock.now_s()))} on {where}."

    def _facts(self) -> list[tuple[str, str]]:
        row = self._row
        facts = [("Submitted", f"{words.moment(row.submitted_s)}, {words.ago(row.submitted_s)}")]
        if row.started_s is not None:
            waited_s = row.started_s - row.submitted_s
            facts.append(("Started", f"{words.moment(row.started_s)}, after {words.duration(waited_s)}"))
        if row.ended_s is not None:
            took = "" if row.started_s is None else f", after {words.duration(row.ended_s - row.started_s)}"
            facts.append(("Ended", f"{words.moment(row.ended_s)}{took}"))
        if row.exit_code is not None:
            facts.append(("Exit code", str(row.exit_code)))
        if row.attempt > 1:
            facts.append(("Attempts", str(row.attempt)))
        return facts

    def _show_timeline(self, life: list[TimelineEvent]) -> None:
        self._timeline.clear()
        with self._timeline:
            show_timeline(life, self._row)

    def _show_placement(self) -> None:
        state = self._context.service.control.state
        live = state.jobs.get(self._id)
        holders = holders_of(state) if live is not None and live.held else {}
        mine = [index for index, devices in holders.items() if any(_has(holds, self._id) for holds in devices.values())]
        if not mine:
            if self._map is not None or not self._placement.default_slot.children:
                self._placement.clear()
                self._map = None
                with self._placement:
                    empty("No devices allocated.")
            return
        racks = {state.inventory.nodes[index].node.rack for index in mine}
        near = [index for index, account in enumerate(state.inventory.nodes) if account.node.rack in racks]
        shown = near if len(near) <= MAX_NODES else sorted(mine)[:MAX_NODES]
        allowed = self._context.tenants()
        drawn = tree(state, shown, holders, lambda held: "mine" if held.job.id == self._id else OTHER, allowed)
        if self._map is None:
            self._placement.clear()
            with self._placement:
                self._map = ClusterMap(drawn)
        self._map.show(drawn)

    async def _show_progress(self) -> None:
        home = self._context.service.home
        latest = await asyncio.to_thread(progress, home, self._id)
        points = await asyncio.to_thread(curve, home, self._id)
        if latest is None:
            set_text(self._progress, "No progress reported. Training scripts can report it with rota.sdk.steps(...).")
        else:
            values = ", ".join(f"{name} {value:.4g}" for name, value in latest["values"].items())
            set_text(
                self._progress,
                f"step {latest['step']:,}, {latest['steps_per_s']:.3g} steps/s" + (f", {values}" if values else ""),
            )
        names = sorted({name for _, _, values in points for name in values})[:4]
        self._curve.set_visibility(bool(names))
        lines = [
            {"name": name, "points": [[step, values[name]] for _, step, values in points if name in values]}
            for name in names
        ]
        options = over_time(lines, axes=[{"scale": True}], legend=len(lines) > 1)
        options["xAxis"] |= {"type": "value", "scale": True, "name": "step", "nameLocation": "middle", "nameGap": 24}
        options["xAxis"]["nameTextStyle"] = options["xAxis"]["axisLabel"]
        options["xAxis"]["splitLine"] = {"show": False}
        options["grid"]["bottom"] = 34
        if self._curve.options != options:
            self._curve.options.clear()
            self._curve.options.update(options)
            self._curve.update()

    def _offer_logs(self) -> None:
        row = self._row
        tasks = int(job_out(row, self._context.service.control)["tasks"])
        self._task.set_options({rank: f"Task {rank}" for rank in range(min(tasks, 256))}, value=self._task.value)
        attempts = {number: f"Attempt {number}" for number in range(max(row.attempt, 1), 0, -1)}
        self._attempt.set_options({0: "Latest attempt", **attempts}, value=self._attempt.value)
        self._task.set_visibility(tasks > 1)
        self._attempt.set_visibility(row.attempt > 1)
        self._watch()

    def _watch(self) -> None:
        attempt = int(self._attempt.value or 0) or max(self._row.attempt, 1)
        folder = attempt_folder(self._context.service.home, self._id, attempt) / str(int(self._task.value or 0))
        self._log.watch(folder)


def _has(holds: list[Any], job_id: JobId) -> bool:
    return any(hold.live.job.id == job_id for hold in holds)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _expectation(expected: Forecast) -> str:
    """When a job is expected to start and end, what that rests on, or why it is not known."""
    parts = []
    start, end, reason = expected.start, expected.end, expected.reason
    if start is not None and start.median_s is not None:
        parts.append(f"Expected to start at {_span(start)}. Position in the queue: {expected.position}.")
    if end is not None and end.median_s is not None:
        parts.append(f"Expected to end at {_span(end)}.")
    if reason is not None:
        parts.append(_sentence(reason.value))
    if start is not None or end is not None:
        parts.append(f"This rests on {expected.basis.sentence()}.")
    return " ".join(parts)


def _span(span: TimeRange) -> str:
    latest = "more than a month from now" if span.high_s is None else words.clock(span.high_s)
    between = f"90% between {words.clock(span.low_s)} and {latest} UTC"
    return f"{words.clock(span.median_s)} UTC, {words.ago(span.median_s)} ({between})"


def _verdict(home: Path, job_id: str) -> list[str]:
    """The verdict about the last failed attempt, its evidence and what follows from it."""
    found = verdicts_of(home, job_id)
    if not found:
        return []
    last = found[-1]
    lines = [f"Last failure: {last['cause']}, of the {last['blame']}. {_sentence(str(last['advice']))}"]
    return [*lines, f"Evidence: {last['evidence']}"] if last.get("evidence") else lines
