"""The links of a manager's network: their topology, and their load over the last day, from the journal."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rota.core.codec.values import decode_decision, decode_event, decode_job
from rota.core.messages.decisions import Move, Resize, Resume, Start
from rota.core.model.cluster import Node
from rota.core.model.job import Job, JobId
from rota.core.model.placement import Placement
from rota.files.network.network_file import network_from_spec
from rota.live.loop.control import Control
from rota.network.layers import LinkLayer, layers_of
from rota.report.link_load import LinkSeries, series_of_steps
from rota.store import clock
from rota.store.journal import Step
from rota.store.records import Records

DAY_S = 86400.0
INTERVALS = 1440
"""Of each the last load is shown; they are minutes, and shorter for a new manager."""
FRESH_S = 3.0
"""How old an answer may be, at least; a long computation is kept for longer."""
REST = 20.0
"""Times as long as a computation took its answer is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkDay:
    """The links, and the load of those that were used, the busiest first."""

    kind: str
    layers: list[LinkLayer]
    series: list[LinkSeries]
    until_s: float


class LinkDays:
    """The last day of links, computed once for all readers."""

    def __init__(self, records: Records, control: Control, network: str) -> None:
        self._records = records
        self._control = control
        self._network = network
        self._computing = threading.Lock()
        self._last: LinkDay | None = None
        self._fresh_until = 0.0

    async def day(self) -> LinkDay:
        """Return the last 24 hours; raises a `RotaError` where the network lacks a node."""
        state = self._control.state
        nodes = [account.node for account in state.inventory.nodes]
        present = {name: live.placement for name, live in state.jobs.items() if live.placement is not None}
        return await asyncio.to_thread(self._day, nodes, present)

    def _day(self, nodes: list[Node], present: Mapping[JobId, Placement]) -> LinkDay:
        with self._computing:
            if self._last is not None and time.monotonic() < self._fresh_until:
                return self._last
            began = time.monotonic()
            self._last = self._computed(nodes, present)
            took_s = time.monotonic() - began
            self._fresh_until = time.monotonic() + max(FRESH_S, REST * took_s)
            return self._last

    def _computed(self, nodes: list[Node], present: Mapping[JobId, Placement]) -> LinkDay:
        now_s = clock.now_s()
        model = network_from_spec(self._network, [str(node.id) for node in nodes])
        known = {JobId(row.id): decode_job(json.loads(row.job)) for row in self._records.alive_at(now_s - DAY_S)}
        steps = list(self._steps(now_s - DAY_S, nodes))
        before = _unmoved(known, present, steps)
        since_s = now_s - DAY_S if before else None
        every_s = (DAY_S if before or not steps else max(now_s - steps[0].now_s, 1.0)) / INTERVALS
        series = series_of_steps(steps, model, nodes, known, before, since_s=since_s, every_s=every_s)
        return LinkDay(kind=model.topology.kind, layers=layers_of(model.topology), series=series, until_s=now_s)

    def _steps(self, at_s: float, nodes: list[Node]) -> Iterator[Step]:
        """Yield the steps since a moment, without placements on nodes that are gone, and without new nodes."""
        index: defaultdict[str, int] = defaultdict(lambda: -1)
        index.update({str(node.id): number for number, node in enumerate(nodes)})
        for body in self._records.steps(self._records.first_step_since(at_s)):
            value = json.loads(body)
            decisions = [decode_decision(each, index) for each in value.get("out", ())]
            yield Step(
                number=int(value["n"]),
                now_s=float(value["t"]),
                events=tuple(decode_event(each) for each in value["in"] if each.get("event") != "node-added"),
                decisions=tuple(each for each in decisions if all(slot.node >= 0 for slot in _placement(each))),
                waits=(),
            )


def _placement(decision: object) -> Placement:
    return decision.placement if isinstance(decision, Start | Resume | Resize | Move) else ()


def _unmoved(
    known: Mapping[JobId, Job], present: Mapping[JobId, Placement], steps: list[Step]
) -> dict[JobId, Placement]:
    """Return where jobs were before some steps, of those that still run there."""
    named = {decision.job_id for step in steps for decision in step.decisions if _placement(decision)}
    return {name: placement for name, placement in present.items() if name in known and name not in named}
