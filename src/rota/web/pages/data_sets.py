"""Data sets: the folders and buckets that the visitor's jobs may use, and the variable in which each finds its path."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import partial

from nicegui import html

from rota.store.data.data_sets import DataSet
from rota.web.forms.data_sets import ask_data_set, drop_data_set
from rota.web.frame import heading
from rota.web.page_context import PageContext
from rota.web.parts.basics import button, empty, row_actions
from rota.web.parts.data_sets import visible_data_sets

EVERY_S = 15.0
DataSetAction = Callable[[DataSet], Awaitable[None]]
_TITLES = (("Name", ""), ("Access", ""), ("Where", "grow"), ("Variable", "hide-phone"), ("For", "hide-phone"))


async def build(context: PageContext) -> None:
    """Build the page."""
    with heading("Data sets", "Folders and buckets with a name, for jobs: rota submit --data NAME."):
        if context.is_admin and context.service.snapshots is not None:
            button("Add data set", "add").on_click(lambda: ask())
    if context.service.snapshots is None:
        empty("Data sets are for a manager of processes; this one schedules the jobs of another system.")
        return
    body = html.div()
    drawn: list[list[DataSet]] = []

    async def update() -> None:
        found = await visible_data_sets(context)
        if drawn == [found]:
            return
        drawn[:] = [found]
        body.clear()
        with body:
            _show(found, (ask, drop) if context.is_admin else None)

    async def ask(data_set: DataSet | None = None) -> None:
        if await ask_data_set(context, data_set):
            await update()

    async def drop(data_set: DataSet) -> None:
        if await drop_data_set(context, data_set.name):
            await update()

    await update()
    context.follow(update, about=lambda _: False, every_s=EVERY_S)


def _show(found: list[DataSet], changes: tuple[DataSetAction, DataSetAction] | None) -> None:
    if not found:
        way = "Add one, or: rota data add NAME PATH" if changes else "An admin adds them: rota data add NAME PATH"
        empty("There are no data sets for your tenants.", way)
        return
    whole = html.div().classes("card table-card").props('tabindex=0 role=region aria-label="List of data sets"')
    with whole, html.table().classes("table").props('aria-label="Data sets"'):
        with html.thead(), html.tr():
            for title, classes in (*_TITLES, ("Actions", "number")) if changes else _TITLES:
                html.th(title, scope="col").classes(classes)
        with html.tbody():
            for each in found:
                with html.tr():
                    html.td(each.name).classes("name-cell strong")
                    html.td("read only" if each.read_only else "writable").classes("nowrap")
                    with html.td():
                        html.span(each.path).classes("mono")
                        if each.about:
                            html.p(each.about).classes("muted")
                    variable = f"ROTA_DATA_{re.sub('[^A-Z0-9]', '_', each.name.upper())}"
                    html.td(variable).classes("hide-phone mono")
                    html.td(", ".join(each.tenants) or "all tenants").classes("hide-phone")
                    if changes is not None:
                        row_actions(f"data set {each.name}", *(partial(change, each) for change in changes))
