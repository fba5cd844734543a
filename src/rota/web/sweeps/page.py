"""One sweep: the best so far, the curves of its trials, what its parameters do, and every trial as a row."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from nicegui import html, ui

from rota.api.access import Principal
from rota.api.sweeps.routes import visible
from rota.live.intake.audit_entry import Asker
from rota.live.intake.requests import NotFound
from rota.store.sweeps import RUNNING
from rota.web import words
from rota.web.page_context import PageContext
from rota.web.parts.basics import Tile, button, card, confirm, empty, set_text
from rota.web.parts.charts import chart
from rota.web.sweeps.charts import (
    best_so_far,
    curves,
    importance_bars,
    number,
    parallel,
    ranked,
    sweep_chip,
    trial_chip,
    value_text,
)

MAX_ROWS = 200
COMPARED = 4
"""Trials that the button compares."""
Json = dict[str, Any]


async def build(context: PageContext) -> None:
    """Build the page, or state that there is no such sweep."""
    sweep_id = str(context.request.path_params["sweep_id"])[:64]
    try:
        sweep = await visible(context.service, context.principal(), sweep_id)
    except NotFound:
        html.h1("No such sweep")
        empty(f"Sweep {sweep_id} does not exist, or you may not see it.", "Old sweeps are deleted after a while.")
        return
    page = SweepPage(context, sweep_id, sweep.name)
    await page.update()
    context.follow(page.update, every_s=2.0)


class SweepPage:
    """The elements of the page that change."""

    def __init__(self, context: PageContext, sweep_id: str, name: str) -> None:
        self._context = context
        self._id = sweep_id
        self._drawn: Json | None = None
        self._best_jobs: list[str] = []
        with html.header().classes("page-head"):
            with html.div():
                with html.div().classes("title-row"):
                    html.h1(name)
                    self._chip = html.span()
                self._about = html.p().classes("muted")
            with html.div().classes("page-actions"):
                self._compare = button("Compare the best", "compare_arrows").on_click(self._open_comparison)
                self._stop = button("Stop", "stop_circle", grave=True).on_click(self._end)
        with html.div().classes("tiles"):
            self._trials, self._value = Tile("Trials"), Tile("Best so far")
            self._device_time, self._saved = Tile("Device time"), Tile("Running now")
        with html.div().classes("grid"):
            with card("Best so far", "by number of the trial"):
                self._progress = chart({}, "The value of each trial, and the best so far")
            with card("Curves", "the best in colour"):
                self._curves = chart({}, "The metric of each trial by step")
            with card("Parameters and result", "a line for each trial, the best in colour", wide=True):
                self._parallel = chart({}, "Parallel coordinates: the parameters of each trial and its result")
            with card("Best trial"):
                self._best = html.div().classes("stack")
            with card("Importance", "how much the result follows each parameter, 0 to 1"):
                self._importance = chart({}, "The importance of each parameter", small=True)
                self._unknown = html.p("Known once five trials have reported.").classes("muted")
        with html.section().classes("card table-card"):
            with html.div().classes("card-head padded"):
                html.h2("Trials")
                self._shown = html.span().classes("muted")
            with html.table().classes("table").props('aria-label="Trials"'):
                with html.thead(), html.tr():
                    for title, classes in (
                        ("Trial", ""),
                        ("State", ""),
                        ("Value", "number"),
                        ("Step", "number"),
                        ("Device time", "number hide-phone"),
                        ("Parameters", "hide-phone"),
                        ("Why", "hide-narrow grow"),
                    ):
                        html.th(title, scope="col").classes(classes)
                self._body = html.tbody()

    async def update(self) -> None:
        """Show the current state of the sweep."""
        context = self._context
        sweep = await visible(context.service, context.principal(), self._id)
        assert context.service.sweeps is not None
        found = await asyncio.to_thread(context.service.sweeps.views.whole, sweep, shows_env=False)
        may_act = context.principal().may_act_on(sweep.file.tenant, sweep.asker.name)
        self._stop.set_visibility(may_act and found["state"] == RUNNING)
        self._show_tiles(found)
        before = self._drawn
        if before is None or before["runs"] != found["runs"] or before["state"] != found["state"]:
            self._drawn = found
            self._show(found)

    def _show_tiles(self, found: Json) -> None:
        states, metric = found["states"], found["metric"]
        over = ", ".join(f"{count} {state}" for state, count in states.items() if count and state != "active")
        self._trials.show(f"{found['begun']:,} of {found['trials']:,}", over or "none has ended")
        self._value.show(value_text(found["best"]), f"{metric}, {found['goal']}d")
        running_s = 0.0 if found["begun"] == 0 else found["device_s"] / found["begun"]
        self._device_time.show(words.duration(found["device_s"]), f"{words.duration(running_s)} for each trial")
        self._saved.show(f"{states['active']:,}", words.plural(states["paused"], "trial") + " paused")

    def _show(self, found: Json) -> None:
        runs, goal, metric = found["runs"], found["goal"], found["metric"]
        self._chip.clear()
        with self._chip:
            sweep_chip(found["state"])
        about = f"Sweep {found['id']} · tenant {found['tenant']} · started by {found['owner']} "
        about += words.ago(found["created_s"]) + f" · {found['sampler']}, {found['rule']}"
        set_text(self._about, about + (f" · {found['why']}" if found["why"] else ""))
        order = ranked(runs, goal)
        self._best_jobs = [run["job"] for run in order[:COMPARED]]
        self._compare.set_visibility(len(self._best_jobs) > 1)
        _draw(self._progress, best_so_far(runs, goal, metric))
        _draw(self._curves, curves(runs, goal, metric))
        _draw(self._parallel, parallel(runs, found["file"]["parameters"], goal, metric))
        known = found["importance"]["by_parameter"]
        self._importance.set_visibility(bool(known))
        self._unknown.set_visibility(not known)
        _draw(self._importance, importance_bars(known))
        self._show_best(found["best"], metric)
        rest = [run for run in runs if run["value"] is None]
        rows = [*order, *rest][:MAX_ROWS]
        set_text(self._shown, f"{len(rows):,} of {len(runs):,}, the best first")
        self._body.clear()
        with self._body:
            for run in rows:
                _row(run)

    def _show_best(self, best: Json | None, metric: str) -> None:
        self._best.clear()
        with self._best:
            if best is None:
                empty("No trial has reported yet.", f"Trials report with rota.sdk.report({metric}=...).")
                return
            with html.dl().classes("facts"):
                html.dt("Trial")
                with html.dd():
                    html.a(f"{best['trial']}, job {best['job']}", href=f"/jobs/{best['job']}").classes("text-link")
                html.dt(metric)
                html.dd(f"{number(best['value'])} at step {best['step']:,}")
                for name, value in best["params"].items():
                    html.dt(name)
                    html.dd(_param(value)).classes("mono")

    def _open_comparison(self) -> None:
        ui.navigate.to(f"/compare?jobs={','.join(self._best_jobs)}")

    async def _end(self) -> None:
        context, sweep_id = self._context, self._id
        sweep = await visible(context.service, context.principal(), sweep_id)
        consequence = "Its running and paused trials will be cancelled. Their results are kept."
        if not await confirm(f"Stop sweep {sweep.name}?", consequence, f"Stop sweep {sweep_id}", grave=True):
            return

        def carry_out(principal: Principal, asker: Asker) -> Awaitable[None]:
            principal.must_act_on(sweep.file.tenant, sweep.asker.name, sweep_id)
            assert context.service.sweeps is not None
            return context.service.sweeps.keeper.stop(sweep_id, asker)

        if await context.act(carry_out, f"Sweep {sweep_id} stopped"):
            await self.update()


def _draw(element: ui.echart, options: Json) -> None:
    if element.options != options:
        element.options.clear()
        element.options.update(options)
        element.update()


def _row(run: Json) -> None:
    with html.tr():
        with html.td():
            html.a(f"{run['trial']}", href=f"/jobs/{run['job']}", title=f"job {run['job']}").classes("text-link mono")
        with html.td():
            trial_chip(run["state"])
        html.td(number(run["value"])).classes("number")
        html.td(f"{run['step']:,}").classes("number")
        html.td(words.duration(run["device_s"])).classes("number hide-phone nowrap")
        text = ", ".join(f"{name}={_param(value)}" for name, value in run["params"].items())
        html.td(text, title=text).classes("hide-phone mono note-cell")
        html.td(run["why"], title=run["why"]).classes("hide-narrow muted note-cell")


def _param(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
