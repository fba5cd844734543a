"""Worlds for tests: a real engine on a small cluster, driven by hand, the rest at its default.

Nothing here is a mock: `Script` is a policy like any other, only that the test writes its plans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rota.core.engine.draft import Draft
from rota.core.engine.engine import Engine, Journal
from rota.core.engine.invariants import check
from rota.core.engine.protocols import Allocator, Capabilities, Changes, Policy
from rota.core.messages.decisions import Cause, Decision, Move, Renew, Resize, Resume, Start, Stop, Suspend
from rota.core.messages.events import (
    End,
    Event,
    Interrupted,
    JobArrived,
    JobCancelled,
    JobEnded,
    JobHeld,
    JobReleased,
    Moved,
    Resized,
    Resumed,
    SpeedChanged,
    Started,
    StartFailed,
    Stopped,
    Suspended,
    TimerFired,
)
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import WHOLE, Job, JobId, NodeId, Role
from rota.core.model.placement import Placement, Slot
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.mechanisms.declare import Knowledge
from rota.perf.speed.model import SpeedModel
from rota.placement import style
from rota.policies import find_policy, names
from rota.tenancy import allocator

made: list[World] = []
"""Every world that the running test made, so that the fixture can check them all."""

GIB = 1 << 30
ROUND_S = 10.0
"""How long a round of `in_rounds` takes."""


def at_once(*, tenancy: bool = False) -> list[str]:
    """The policies that plan when something happens, not in rounds; with `tenancy`, those that leave room for it."""
    found = {name: find_policy(name)[0] for name in names()}
    return [name for name, one in found.items() if not one.plans_in_rounds and not (tenancy and one.whole_cluster)]


def in_rounds() -> list[str]:
    """The policies that plan in rounds, as a cluster runs them: short rounds, the options of live use."""
    kinds = ("gavel/", "shockwave", "optimus", "pollux", "sia")
    found = {name: find_policy(name)[0] for name in names() if name.startswith(kinds)}
    return [f"{name}:{one.live_options(f'round_s={ROUND_S:g}')}" for name, one in found.items()]


def in_rounds_mostly_slow() -> list[Any]:
    """As `in_rounds`, as parameters of a test: all but a few, which stand for the others, are slow ones."""
    few = ("gavel/fifo:", "gavel/gandiva:", "gavel/max_min_fairness_packed:")
    return [each if each.startswith(few) else pytest.param(each, marks=pytest.mark.slow) for each in in_rounds()]


def job(name: str = "j", /, *, gpus: float = 1, workers: int = 1, **fields: Any) -> Job:
    """A job of `workers` tasks with `gpus` devices each; role fields and job fields alike by name."""
    of_role = {key: fields.pop(key) for key in list(fields) if key in _ROLE_FIELDS}
    if "roles" not in fields:
        fields["roles"] = (Role(count=workers, device_milli=round(gpus * WHOLE), **of_role),)
    return Job(id=JobId(name), **fields)


_ROLE_FIELDS = frozenset(
    {"device_types", "device_memory_bytes", "cpu_milli", "memory_bytes", "network_bps", "disk_bps"}
)


def node(name: str, devices: int = 4, **fields: Any) -> Node:
    """A node of a cluster."""
    return Node(id=NodeId(name), devices=devices, **fields)


def cluster(*nodes: Node) -> Cluster:
    """A cluster of these nodes."""
    return Cluster(nodes=nodes)


def on(name: str, gpus: int | Sequence[int], *, tasks: int = 1, role: int = 0, milli: int = WHOLE) -> Placement:
    """One slot on node `n1`, `n2`...: the first so many devices, or these ones."""
    devices = range(gpus) if isinstance(gpus, int) else gpus
    return (Slot(int(name[1:]) - 1, sum(1 << device for device in devices), tasks, role, milli),)


def start(name: str, *placements: Placement) -> Start:
    """The order to start a job on these slots together."""
    return Start(JobId(name), tuple(slot for placement in placements for slot in placement))


def stop(name: str, cause: Cause = Cause.PREEMPTED) -> Stop:
    """The order to stop a job."""
    return Stop(JobId(name), cause)


class Script:
    """A policy without a mind of its own: at its next plan it does what the test says."""

    capabilities = Capabilities()

    def __init__(self) -> None:
        self.todo: list[Callable[[Draft], None]] = []
        self.heard: list[Changes] = []
        self.wakeup_s = float("inf")
        self.memory: Any = None

    def note(self, changes: Changes, now_s: float) -> None:
        self.heard.append(changes)

    def plan(self, draft: Draft) -> None:
        todo, self.todo = self.todo, []
        self.wakeup_s = float("inf")
        for act in todo:
            act(draft)

    def explain(self, waiting: LiveJob, draft: Draft) -> Reason:
        return Reason(code=ReasonCode.ROUND)

    def adopt(self, state: State) -> None:
        pass


class World:
    """An engine with its cluster. Methods that step return what the engine decided then."""

    def __init__(
        self,
        *,
        gpus: int = 4,
        nodes: int = 1,
        of: Cluster | None = None,
        policy: str | Script = "fifo",
        placement: str = "consolidate",
        tenancy: str = "none",
        journal: Journal | None = None,
        nominal_rate: float = 1.0,
        restart_s: float = 0.0,
        speed: SpeedModel | None = None,
    ) -> None:
        self.cluster = of or Cluster.uniform(("gpu", gpus * nodes, gpus))
        self.state = State(self.cluster)
        self.now_s = 0.0
        self._allocator: Allocator = allocator(tenancy, style(placement), self.cluster)
        self._journal = journal
        self._nominal_rate = nominal_rate
        self._knowledge = Knowledge(restart_s=restart_s, speed=speed or SpeedModel())
        self._policy = policy
        self._engine: Engine | None = None
        made.append(self)

    @property
    def engine(self) -> Engine:
        """The engine, made when first needed."""
        if self._engine is None:
            self._engine = self._make(self._policy)
        return self._engine

    def _make(self, policy: str | Script) -> Engine:
        built: Policy
        if isinstance(policy, Script):
            built = policy
        else:
            declared, options = find_policy(policy)
            built = declared.build(options, self._allocator, self._knowledge)
        return Engine(self.state, built, self._allocator, journal=self._journal)

    # -- building --------------------------------------------------------------------------------

    def running(
        self,
        name: str,
        *,
        at: Placement | None = None,
        attained_gpu_s: float = 0.0,
        rate: float = 1.0,
        **fields: Any,
    ) -> World:
        """A job that runs already: on these devices, or on those that the placement picks."""
        script = Script()
        engine = self._make(script)
        asked = fields.pop("job", None) or job(name, **fields)
        engine.step(self.now_s, [JobArrived(asked, nominal_rate=self._nominal_rate)])
        live = self.live(name)

        def place(draft: Draft) -> None:
            found = draft.offer(live) if at is None else at
            assert not isinstance(found, Reason), found
            draft.assign(live, found)

        script.todo, script.wakeup_s = [place], self.now_s
        engine.step(self.now_s, [TimerFired()])
        engine.step(self.now_s, [Started(asked.id, rate, self.now_s)])
        live.attained_milli_s = attained_gpu_s * WHOLE
        live.ran_s = attained_gpu_s / max(live.gpus, 1.0)
        live.submitted_s = self.now_s - live.ran_s
        live.first_start_s = live.submitted_s
        self._engine = None
        return self

    # -- stepping --------------------------------------------------------------------------------

    def step(self, *events: Event) -> list[Decision]:
        """These events, now."""
        decisions = self.engine.step(self.now_s, events)
        check(self.state)
        return decisions

    def pass_s(self, seconds: float) -> World:
        """Time passes; nothing is told to the engine yet."""
        self.now_s += seconds
        return self

    def timer(self, at_s: float | None = None) -> list[Decision]:
        """The engine's timer fires: now, or at a later moment."""
        if at_s is not None:
            self.now_s = at_s
        return self.step(TimerFired())

    def submit(
        self, name: str = "j", *, held: bool = False, policy: str | None = None, **fields: Any
    ) -> list[Decision]:
        """A job arrives. Naming a policy puts the world under it first."""
        if policy is not None:
            self._policy, self._engine = policy, None
        asked = fields.pop("job", None) or job(name, **fields)
        return self.step(JobArrived(asked, held=held, nominal_rate=self._nominal_rate))

    def cancel(self, name: str) -> list[Decision]:
        return self.step(JobCancelled(JobId(name)))

    def hold(self, name: str) -> list[Decision]:
        return self.step(JobHeld(JobId(name)))

    def release(self, name: str) -> list[Decision]:
        return self.step(JobReleased(JobId(name)))

    def started(self, *names: str, rate: float = 1.0, work_from_s: float | None = None) -> list[Decision]:
        from_s = self.now_s if work_from_s is None else work_from_s
        return self.step(*(Started(JobId(name), rate, from_s) for name in names))

    def start_failed(self, name: str) -> list[Decision]:
        return self.step(StartFailed(JobId(name), "no such image"))

    def stopped(self, *names: str, work: float | None = None) -> list[Decision]:
        return self.step(*(Stopped(JobId(name), self._work(name, work)) for name in names))

    def resized(self, name: str, rate: float = 1.0) -> list[Decision]:
        return self.step(Resized(JobId(name), self._work(name, None), rate, self.now_s))

    def moved(self, name: str, rate: float = 1.0) -> list[Decision]:
        return self.step(Moved(JobId(name), self._work(name, None), rate, self.now_s))

    def suspended(self, *names: str) -> list[Decision]:
        return self.step(*(Suspended(JobId(name), self._work(name, None)) for name in names))

    def resumed(self, *names: str, rate: float = 1.0) -> list[Decision]:
        return self.step(*(Resumed(JobId(name), rate, self.now_s) for name in names))

    def ended(self, *names: str, end: End = End.SUCCEEDED) -> list[Decision]:
        return self.step(*(JobEnded(JobId(name), end, self._work(name, None)) for name in names))

    def interrupted(self, *names: str, work: float = 0.0) -> list[Decision]:
        return self.step(*(Interrupted(JobId(name), work) for name in names))

    def settle(self, decisions: Sequence[Decision]) -> list[Decision]:
        """Answer orders at once, and those that follow from the answers; everything that was ordered."""
        ordered = list(decisions)
        while decisions:
            decisions = self.step(*(self._answer(decision) for decision in decisions))
            ordered.extend(decisions)
        return ordered

    def _answer(self, decision: Decision) -> Event:
        name = decision.job_id
        match decision:
            case Start():
                return Started(name, 1.0, self.now_s)
            case Stop():
                return Stopped(name, self._work(name, None))
            case Renew():
                return SpeedChanged(name, self._work(name, None), 1.0)
            case Resize():
                return Resized(name, self._work(name, None), 1.0, self.now_s)
            case Move():
                return Moved(name, self._work(name, None), 1.0, self.now_s)
            case Suspend():
                return Suspended(name, self._work(name, None))
            case Resume():
                return Resumed(name, 1.0, self.now_s)

    # -- reading ---------------------------------------------------------------------------------

    def live(self, name: str) -> LiveJob:
        """The engine's record of a job."""
        return self.state.live(JobId(name))

    def states(self) -> dict[str, str]:
        """Where each job stands."""
        return {str(name): live.state.value for name, live in self.state.jobs.items()}

    def why(self, name: str) -> Reason | None:
        """Why a job waits."""
        return self.engine.explain(JobId(name))

    def code(self, name: str) -> ReasonCode | None:
        """The kind of obstacle that a job waits for."""
        reason = self.why(name)
        return None if reason is None else reason.code

    def _work(self, name: str, work: float | None) -> float:
        return self.live(name).work_done(self.now_s) if work is None else work
