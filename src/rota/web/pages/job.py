"""One job: where it stands and why, its life, its place, its progress, what it uses and what it says."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from nicegui import background_tasks, html, ui

from rota.api.access import Principal
from rota.api.jobs import visible
from rota.api.wire import job_out
from rota.core.model.job import JobId
from rota.drivers.local.task_usage import use_now
from rota.live.loop.requests import NotFound
from rota.live.views.compare import compared
from rota.live.views.job_timeline import TimelineEvent, life_of
from rota.live.workers.forecast import Forecast
from rota.store.jobs import FINAL
from rota.store.run_folder import attempt_folder, curve, progress, usage
from rota.web import words
from rota.web.actions import act_on_job
from rota.web.desk import PageContext
from rota.web.draft import text_of
from rota.web.parts.basics import button, card, empty, say
from rota.web.parts.charts import chart, over_time
from rota.web.parts.compared import show_compared
from rota.web.parts.life import show_life
from rota.web.parts.log import LogView
from rota.web.parts.map import ClusterMap
from rota.web.parts.meters import Meters
from rota.web.topology import OTHER, holders_of, tree

FORECAST_EVERY_S = 10.0
FORECAST_SHARE = 20.0
"""After a forecast nothing is asked for so many times as long as it took."""
MOST_NODES = 64


async def build(desk: PageContext) -> None:
    """The whole page, or that there is no such job."""
    job_id = str(desk.request.path_params["job_id"])[:64]
    try:
        row = await visible(desk.service, desk.who(), job_id)
    except NotFound:
        html.h1("No such job")
        empty(f"There is no job {job_id}, or you may not see it.", "Old jobs are forgotten after a while.")
        return
    page = JobPage(desk, row)
    await page.update()
    desk.follow(page.update, about=lambda news: news.job_id == job_id, every_s=2.0)


class JobPage:
    """What is on the page and changes."""

    def __init__(self, desk: PageContext, row: Any) -> None:
        self._desk = desk
        self._row = row
        self._id = JobId(row.id)
        self._version = -1
        self._expected: Forecast | None = None
        self._asked: asyncio.Task[None] | None = None
        self._comparing: asyncio.Task[None] | None = None
        self._ask_again_s = 0.0
        self._head(row)
        with html.div().classes("grid"):
            with card("Now"):
                self._now = html.div().classes("stack")
            with card("Resources", "use against request"):
                self._meters = Meters(row)
                self._compared = html.div().classes("stack")
            with card("Life", wide=True):
                self._life = html.div().classes("stack")
            with card("Place", "devices of this job are coloured"):
                self._place = html.div().classes("stack")
                self._map: ClusterMap | None = None
            with card("Progress", "as its first task reports it"):
                self._progress = html.div().classes("muted")
                self._curve = chart({}, "The numbers that the job reports, by step", small=True)
            with card("Output", wide=True):
                with html.div().classes("filters"):
                    self._task = ui.select({0: "Task 0"}, value=0, on_change=self._watch)
                    self._attempt = ui.select({0: "Last attempt"}, value=0, on_change=self._watch)
                    self._task.props('outlined dense options-dense aria-label="Task"').classes("filter")
                    self._attempt.props('outlined dense options-dense aria-label="Attempt"').classes("filter")
                self._log = LogView("Nothing has been said yet.")
            with card("What was asked for", wide=True):
                told = job_out(row, desk.service.control, whole=True)
                html.pre(text_of(told["spec"])).classes("code").props('tabindex=0 role=region aria-label="Job file"')

    def _head(self, row: Any) -> None:
        with html.header().classes("page-head"):
            with html.div():
                with html.div().classes("title-row"):
                    html.h1(row.name)
                    self._chip = html.span()
                about = f"Job {row.id} · tenant {row.tenant}" + (f" · by {row.owner}" if row.owner else "")
                html.p(about).classes("muted")
            with html.div().classes("page-actions"):
                self._buttons: dict[str, ui.button] = {}
                if not self._desk.who().may_change(row.tenant):
                    return
                button("Clone", "content_copy").on_click(lambda: ui.navigate.to(f"/submit?clone={row.id}"))
                for action, text, icon in (
                    ("release", "Release", "play_arrow"),
                    ("hold", "Hold", "pause"),
                    ("cancel", "Cancel", "cancel"),
                ):
                    self._buttons[action] = button(text, icon, grave=action == "cancel")
                    self._buttons[action].on_click(lambda action=action: self._act(action))

    async def _act(self, action: str) -> None:
        if await act_on_job(self._desk, self._row, action):
            await self.update()

    async def update(self) -> None:
        """Show how it stands now."""
        who: Principal = self._desk.who()
        self._row = row = await visible(self._desk.service, who, self._id)
        home = self._desk.service.home
        use = await asyncio.to_thread(use_now, home, self._id, row.attempt) if row.state not in FINAL else None
        used = await asyncio.to_thread(usage, home, self._id, row.attempt)
        self._foresee()
        self._show_state()
        self._meters.show(use, used)
        self._show_place()
        await self._show_progress()
        if row.version != self._version:
            self._version = row.version
            life = await asyncio.to_thread(life_of, self._desk.service.records, row.id, row.submitted_s, row.ended_s)
            self._show_life(life)
            self._offer_logs()
            self._comparing = background_tasks.create(self._compare())

    async def _compare(self) -> None:
        """Request, estimate and use side by side, beside everything else: an estimate may have to be learned first."""
        service = self._desk.service
        lines = await compared(self._row, service.home, service.learning)
        self._compared.clear()
        with self._compared:
            show_compared(lines)

    def _foresee(self) -> None:
        """Find out when it is expected to start, beside everything else: it costs a simulation."""
        if self._row.state not in ("waiting", "suspended"):
            self._expected = None
        elif (self._asked is None or self._asked.done()) and time.monotonic() > self._ask_again_s:
            self._asked = background_tasks.create(self._ask())

    async def _ask(self) -> None:
        begun_s = time.monotonic()
        self._expected = await self._desk.service.requests.foresee(self._id)
        now_s = time.monotonic()
        self._ask_again_s = now_s + max(FORECAST_EVERY_S, FORECAST_SHARE * (now_s - begun_s))

    def _show_state(self) -> None:
        row = self._row
        self._chip.classes(replace=f"chip chip-{row.state}")
        say(self._chip, row.state)
        for action, shown in (
            ("release", row.state == "held"),
            ("hold", row.state == "waiting"),
            ("cancel", row.state not in FINAL),
        ):
            if action in self._buttons:
                self._buttons[action].set_visibility(shown)
        reason = self._desk.service.control.explain(self._id)
        self._now.clear()
        with self._now:
            if reason is not None:
                html.p(_sentence(reason.sentence())).classes("reason").props('data-testid="reason"')
            elif row.message:
                html.p(_sentence(row.message)).classes("reason")
            elif (said := self._standing()) is not None:
                html.p(said).classes("reason")
            if self._expected is not None:
                html.p(_expectation(self._expected)).props('data-testid="expected"')
            elif self._asked is not None and not self._asked.done():
                html.p("Working out when it is expected to start …").classes("muted")
            with html.dl().classes("facts"):
                for name, said in self._facts():
                    html.dt(name)
                    html.dd(said)

    def _standing(self) -> str | None:
        """Where it runs, if it does; how it went, if it is over."""
        live = self._desk.service.control.state.jobs.get(self._id)
        if self._row.state == "succeeded":
            return "It has succeeded."
        if live is None or live.placement is None or live.reserved:
            return None
        nodes = self._desk.service.control.state.inventory.nodes
        names = list(dict.fromkeys(str(nodes[slot.node].node.id) for slot in live.placement))
        where = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        return f"It has run for {words.duration(live.run_s(time.time()))} on {where}."

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

    def _show_life(self, life: list[TimelineEvent]) -> None:
        self._life.clear()
        with self._life:
            show_life(life, self._row)

    def _show_place(self) -> None:
        state = self._desk.service.control.state
        live = state.jobs.get(self._id)
        holders = holders_of(state) if live is not None and live.placement is not None and not live.reserved else {}
        mine = [index for index, devices in holders.items() if any(_has(holds, self._id) for holds in devices.values())]
        if not mine:
            if self._map is not None or not self._place.default_slot.children:
                self._place.clear()
                self._map = None
                with self._place:
                    empty("It holds no devices now.")
            return
        racks = {state.inventory.nodes[index].node.rack for index in mine}
        near = [index for index, books in enumerate(state.inventory.nodes) if books.node.rack in racks]
        shown = near if len(near) <= MOST_NODES else sorted(mine)[:MOST_NODES]
        allowed = self._desk.tenants()
        drawn = tree(state, shown, holders, lambda held: "mine" if held.job.id == self._id else OTHER, allowed)
        if self._map is None:
            self._place.clear()
            with self._place:
                self._map = ClusterMap(drawn)
        self._map.show(drawn)

    async def _show_progress(self) -> None:
        home = self._desk.service.home
        told = await asyncio.to_thread(progress, home, self._id)
        points = await asyncio.to_thread(curve, home, self._id)
        if told is None:
            say(self._progress, "It reports none. A training script does so with rota.sdk.steps(...).")
        else:
            values = ", ".join(f"{name} {value:.4g}" for name, value in told["values"].items())
            say(
                self._progress,
                f"step {told['step']:,}, {told['steps_per_s']:.3g} steps/s" + (f", {values}" if values else ""),
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
        tasks = int(job_out(row, self._desk.service.control)["tasks"])
        self._task.set_options({rank: f"Task {rank}" for rank in range(min(tasks, 256))}, value=self._task.value)
        attempts = {number: f"Attempt {number}" for number in range(max(row.attempt, 1), 0, -1)}
        self._attempt.set_options({0: "Last attempt", **attempts}, value=self._attempt.value)
        self._task.set_visibility(tasks > 1)
        self._attempt.set_visibility(row.attempt > 1)
        self._watch()

    def _watch(self) -> None:
        attempt = int(self._attempt.value or 0) or max(self._row.attempt, 1)
        folder = attempt_folder(self._desk.service.home, self._id, attempt) / str(int(self._task.value or 0))
        self._log.watch(folder)


def _has(holds: list[Any], job_id: JobId) -> bool:
    return any(hold.live.job.id == job_id for hold in holds)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _expectation(expected: Forecast) -> str:
    if expected.usual_s is None:
        return "It is not expected to start within a month, as things are."
    latest = "later than in a month" if expected.latest_s is None else words.clock(expected.latest_s)
    span = f"between {words.clock(expected.earliest_s)} and {latest} UTC"
    guess = "" if expected.known else " A guess: nothing is known of how long the jobs ahead run."
    start = f"Expected to start at {words.clock(expected.usual_s)} UTC, {words.ago(expected.usual_s)} ({span})"
    return f"{start}, as number {expected.position} of those that wait.{guess}"
