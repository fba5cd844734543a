"""The health of nodes with spares over random courses: signs, repairs, administrators, restarts."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from builders import cluster, node
from rota.core.messages.events import Event, NodeDrained, NodeUndrained
from rota.core.model.job import NodeId
from rota.core.state.state import State
from rota.health.node_state import BAD_TO_DRAIN, HealthSign, NodeHealthState, Severity
from rota.live.health.node_watch import NodeWatch

NAMES = [NodeId(f"n{number}") for number in range(1, 6)]
OUT = (NodeHealthState.BAD, NodeHealthState.IN_REPAIR)
AT = st.sampled_from(NAMES)


class NodeHealthMachine(RuleBasedStateMachine):
    """What the engine would know is kept in a state of its own, changed by what the watch tells."""

    @initialize(spares=st.integers(0, 2))
    def begin(self, spares: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.spares = spares
        self.now_s = 1.0
        self.busy: set[NodeId] = set()
        self.by_hand: set[NodeId] = set()
        self.warned = dict.fromkeys(NAMES, 0)
        self.start()

    @rule(spares=st.integers(0, 2))
    def change_spares(self, spares: int) -> None:
        """Start again with another number of spares."""
        before, self.spares = self.spares, spares
        self.start(frozenset(name for name in NAMES if self.is_drained(name)))
        are_in_use = not any(self.watch.health(name).state in OUT for name in NAMES)
        assert sum(map(self.watch.is_spare, NAMES)) == spares or spares == before or not are_in_use

    def start(self, drained: frozenset[NodeId] = frozenset()) -> None:
        self.state = State(cluster(*(node(name) for name in NAMES)))
        for name in drained:
            self.state.inventory.set_drained(self.state.node(name), True)
        self.watch = NodeWatch(self.state, Path(self.folder.name), self.tell, spares=self.spares)
        self.watch._is_empty = lambda node_id: node_id not in self.busy  # type: ignore[method-assign]

    def tell(self, event: Event) -> None:
        if isinstance(event, NodeDrained | NodeUndrained):
            self.state.inventory.set_drained(self.state.node(event.node_id), isinstance(event, NodeDrained))

    def is_drained(self, name: NodeId) -> bool:
        return self.state.inventory.nodes[self.state.node(name)].drained

    @rule(name=AT, severity=st.sampled_from(Severity))
    def sign(self, name: NodeId, severity: Severity) -> None:
        self.now_s += 1.0
        bad = BAD_TO_DRAIN if severity is Severity.SEVERE else severity.value
        self.warned[name] += bad
        self.watch.take(name, HealthSign(at_s=self.now_s, source="gpu", severity=severity, text="x"))

    @rule(name=AT)
    def job_starts(self, name: NodeId) -> None:
        if not self.is_drained(name):
            self.busy.add(name)

    @rule(name=AT)
    def job_ends(self, name: NodeId) -> None:
        self.now_s += 1.0
        self.busy.discard(name)
        self.watch.look(self.now_s)
        assert self.watch.health(name).state is not NodeHealthState.DRAINING

    @rule(name=AT)
    def repair(self, name: NodeId) -> None:
        self.watch.repair(name, self.now_s)
        self.warned[name] += BAD_TO_DRAIN

    @rule(name=AT)
    def drain_by_hand(self, name: NodeId) -> None:
        if not self.is_drained(name):
            self.by_hand.add(name)
            self.tell(NodeDrained(name))

    @rule(name=AT)
    def undrain_by_hand(self, name: NodeId) -> None:
        self.by_hand.discard(name)
        self.tell(NodeUndrained(name))
        self.watch.clear(name, self.now_s)

    @rule(keeps=st.booleans())
    def restart(self, keeps: bool) -> None:
        """Start again; what the engine knew of drains may be lost."""
        before = {name: self.watch.health(name) for name in NAMES}
        spare = {name for name in NAMES if self.watch.is_spare(name)}
        drained = frozenset(name for name in NAMES if self.is_drained(name))
        if not keeps:
            self.by_hand.clear()
        self.start(drained if keeps else frozenset())
        assert {name: self.watch.health(name).state for name in NAMES} == {name: h.state for name, h in before.items()}
        assert {name for name in NAMES if self.watch.is_spare(name)} == spare

    @precondition(lambda self: hasattr(self, "watch"))
    @invariant()
    def what_is_drained_follows_from_health(self) -> None:
        for name in NAMES:
            state = self.watch.health(name).state
            if state is NodeHealthState.HEALTHY and not self.watch.is_spare(name):
                self.warned[name] = min(self.warned[name], 0)
            takes_jobs = state.takes_jobs and not self.watch.is_spare(name) and name not in self.by_hand
            assert self.is_drained(name) is not takes_jobs, (name, state)
            if not state.takes_jobs:
                assert self.warned[name] >= BAD_TO_DRAIN, "drained without enough signs"
        assert sum(map(self.watch.is_spare, NAMES)) <= self.spares

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()


TestNodeHealth = NodeHealthMachine.TestCase
TestNodeHealth.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
