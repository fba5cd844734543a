"""The map of the cluster: the jobs on each device, fragmented idle devices, and unavailable nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import quote

from nicegui import html, ui
from nicegui.events import ValueChangeEventArguments

from rota.api.wire import state_of
from rota.core.model.job import NodeId
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.health.node_state import NodeHealthState
from rota.live.views.devices import count_devices
from rota.live.views.gpus import gpu_rows
from rota.web import words
from rota.web.actions import drain
from rota.web.frame import heading
from rota.web.page_context import PageContext
from rota.web.parts.basics import Tile, bar, button, card, chip, empty, legend
from rota.web.parts.gpus import show_gpus
from rota.web.parts.map import ClusterMap
from rota.web.topology import OTHER, Holders, colours_for, holders_of, tree

MAX_NODES = 400
"""A larger cluster is shown by rack."""
_CHIPS = {
    NodeHealthState.HEALTHY: "succeeded",
    NodeHealthState.SUSPECT: "waiting",
    NodeHealthState.DRAINING: "suspended",
    NodeHealthState.BAD: "failed",
    NodeHealthState.IN_REPAIR: "held",
}
"""The colours of the states of health: those of job states that mean as much."""
BY = {"tenant": "Colour by tenant", "job": "Colour by job"}


async def build(context: PageContext) -> None:
    """Build the page."""
    page = ClusterPage(context)
    await page.update()
    context.follow(page.update)


class ClusterPage:
    """The elements of the page that change."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._by = "tenant"
        self._rack = context.request.query_params.get("rack", "")[:256]
        self._map: ClusterMap | None = None
        self._drawn: object = None
        about = f"Rack {self._rack}" if self._rack else ""
        with heading("Cluster", about):
            if self._rack:
                button("All racks", "arrow_back").on_click(lambda: ui.navigate.to("/cluster"))
        with html.div().classes("tiles"):
            self._devices, self._idle = Tile("Devices allocated"), Tile("Idle")
            self._scattered, self._bad = Tile("Fragmented"), Tile("Unavailable")
        with card("Map"):
            with html.div().classes("filters"):
                ui.select(BY, value=self._by, on_change=self._paint_by).props(
                    'outlined dense options-dense aria-label="Colour by"'
                ).classes("filter")
                self._legend = html.div()
            self._place = html.div()
        with html.div() as self._health_card, card("Health", "nodes that are not healthy, or that stand out"):
            self._health = html.div()
        self._health_rows: object = None
        self._gpus: html.div | None = None
        self._gpu_rows: object = None
        if context.service.gpus is not None:
            with card("GPUs", "of this machine, now"):
                self._gpus = html.div()

    async def _paint_by(self, event: ValueChangeEventArguments[str]) -> None:
        self._by = event.value
        await self.update()

    async def update(self) -> None:
        """Draw the current state of the cluster."""
        state = self._context.service.control.state
        counts = count_devices(state.inventory)
        total = sum(count.total for count in counts)
        busy, idle = sum(count.busy for count in counts), sum(count.idle for count in counts)
        scattered, bad = sum(count.scattered for count in counts), sum(count.bad for count in counts)
        self._devices.show(words.percent(busy, total), f"{words.amount(busy)} of {words.amount(total)}")
        self._idle.show(words.amount(idle), "available for jobs now")
        self._scattered.show(words.amount(scattered), "idle on partly allocated nodes")
        self._bad.show(words.amount(bad), "on nodes that are down or drained")
        indexes = [
            index
            for index, account in enumerate(state.inventory.nodes)
            if (account.users or not account.removed) and (not self._rack or account.node.rack == self._rack)
        ]
        if len(indexes) > MAX_NODES:
            self._show_racks(state, indexes)
        else:
            self._show_nodes(state, indexes)
        self._show_health(state)
        self._show_gpus()

    def _show_health(self, state: State) -> None:
        """List the nodes with something to say about their health."""
        service = self._context.service
        known = [
            (str(account.node.id), service.health_of(account.node.id))
            for account in state.inventory.nodes
            if not account.removed and (not self._rack or account.node.rack == self._rack)
        ]
        rows = [(name, each["health"], _signs(each)) for name, each in known if each]
        rows = [row for row in rows if row[1] != NodeHealthState.HEALTHY.value or row[2]][:MAX_NODES]
        if rows == self._health_rows:
            return
        self._health_rows = rows
        self._health_card.set_visibility(bool(rows))
        self._health.clear()
        with self._health, html.div().classes("stack"):
            for name, health, why in rows:
                with html.div().classes("list-row"):
                    html.span(health).classes(f"chip chip-{_CHIPS[NodeHealthState(health)]}")
                    html.span(name).classes("strong ellipsis")
                    html.span(why).classes("muted ellipsis grow")

    def _show_gpus(self) -> None:
        service = self._context.service
        rows = gpu_rows(service.gpus, service.control, self._context.tenants())
        if self._gpus is None or rows == self._gpu_rows:
            return
        self._gpu_rows = rows
        self._gpus.clear()
        with self._gpus:
            show_gpus(rows)

    def _show_nodes(self, state: State, indexes: Sequence[int]) -> None:
        holders = holders_of(state)
        allowed = self._context.tenants()

        def name_of(live: LiveJob) -> str | None:
            if allowed is not None and live.job.tenant not in allowed:
                return None
            return str(live.job.tenant) if self._by == "tenant" else f"{live.job.id} {live.job.name}"

        held = Counter(name for index in indexes for name in _names(holders, index, name_of))
        colours = colours_for(held)

        def paint(live: LiveJob) -> str:
            return colours.get(name_of(live) or "", OTHER)

        domains = tree(state, indexes, holders, paint, allowed)
        if not indexes:
            if self._drawn != "nothing":
                self._drawn = "nothing"
                with self._place:
                    empty(f"No rack is named {self._rack}.")
            return
        if self._map is None:
            with self._place:
                self._map = ClusterMap(domains, self._open)
        self._map.show(domains)
        shown = [
            (f"{name} ({words.plural(count, 'device')})", colours[name])
            for name, count in held.most_common()
            if name in colours
        ]
        if shown != self._drawn:
            self._drawn = shown
            self._legend.clear()
            with self._legend:
                more = [(f"{len(held) - len(colours)} more", "other-swatch")] if len(held) > len(colours) else []
                others = [("other tenants", "other-swatch")] if allowed is not None else []
                legend([*shown, *more, *others, ("free", "free-swatch"), ("free (fragmented)", "fragment-swatch")])

    def _show_racks(self, state: State, indexes: Sequence[int]) -> None:
        racks: dict[tuple[str, str], list[int]] = {}
        for index in indexes:
            node = state.inventory.nodes[index].node
            racks.setdefault((node.domain, node.rack), []).append(index)
        rows = []
        for (domain, rack), members in racks.items():
            accounts = [state.inventory.nodes[index] for index in members]
            total = sum(account.node.devices for account in accounts)
            free = sum(account.free for account in accounts if account.usable)
            bad = sum(account.node.devices for account in accounts if not account.up or account.drained)
            rows.append((domain, rack, len(members), total, free, bad))
        if rows == self._drawn:
            return
        self._drawn = rows
        self._place.clear()
        with self._place, html.div().classes("rack-list"):
            for domain, rack, nodes, total, free, bad in rows:
                with html.a(href=f"/cluster?rack={quote(rack)}").classes("rack-row"):
                    busy = max(total - free - bad, 0)
                    label = f"{words.plural(nodes, 'node')}, {busy} of {total} busy" + (
                        f", {bad} unavailable" if bad else ""
                    )
                    with html.div().classes("row-label"):
                        html.span(f"{domain} / {rack}").classes("strong ellipsis")
                        html.span(label).classes("muted")
                    bar(
                        (("busy", busy, "busy"), ("free", free, "idle"), ("unavailable", bad, "bad")),
                        max(total, 1),
                        label,
                    )

    async def _open(self, node_id: str) -> None:
        """Open the dialog of a node: its jobs, and its actions."""
        state = self._context.service.control.state
        index = state.inventory.by_name.get(NodeId(node_id))
        if index is None:
            return
        account = state.inventory.nodes[index]
        node_state = state_of(account)
        jobs = {hold.live.job.id: hold.live for holds in holders_of(state).get(index, {}).values() for hold in holds}
        allowed = self._context.tenants()
        seen = [live for live in jobs.values() if allowed is None or live.job.tenant in allowed]
        with ui.dialog() as dialog, html.div().classes("card dialog"):
            dialog.props["aria-label"] = f"Node {node_id}"
            html.h2(node_id)
            node = account.node
            html.p(f"{node_state}, {account.free} of {node.devices} {node.device_type} free").classes("muted")
            about = self._context.service.health_of(node.id)
            if about:
                signs = _signs(about)
                html.p(f"Health: {about['health']}" + (f", {signs}" if signs else ""))
            with html.div().classes("stack"):
                for live in seen:
                    with html.a(href=f"/jobs/{live.job.id}").classes("list-row"):
                        chip(live.state.value)
                        html.span(live.job.name).classes("strong ellipsis grow")
                        html.span(str(live.job.tenant)).classes("muted ellipsis")
                if len(seen) < len(jobs):
                    html.p(f"{len(jobs) - len(seen)} more from other tenants").classes("muted")
                if not jobs:
                    html.p("No jobs on this node.").classes("muted")
            with html.div().classes("dialog-actions"):
                ui.button("Close", color=None, on_click=dialog.close).props("flat no-caps")
                if self._context.is_admin and not account.removed:
                    text, icon = ("Undrain", "play_arrow") if account.drained else ("Drain", "block")
                    act = button(text, icon, grave=not account.drained)
                    act.on_click(lambda: dialog.submit("drain"))
        dialog.on("hide", dialog.delete)
        wanted = await dialog
        if wanted == "drain" and await drain(self._context, node_id, drained=not account.drained):
            await self.update()


def _signs(about: Mapping[str, str]) -> str:
    """Return the last sign against a node and its checks that are broken, in words."""
    broken = about.get("broken_checks")
    return "; ".join(each for each in (about["health_why"], broken and f"broken check {broken}") if each)


def _names(holders: Holders, index: int, name_of: Callable[[LiveJob], str | None]) -> list[str]:
    """Return the names on a node's devices, each once per device."""
    found = [{name_of(hold.live) for hold in holds} for holds in holders.get(index, {}).values()]
    return [name for names in found for name in names if name is not None]
