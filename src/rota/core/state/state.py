"""The state of the engine, with the named transitions that change it and its indexes."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from rota.core.errors import InvariantBroken, RotaError
from rota.core.messages.decisions import Cause, Lease
from rota.core.messages.reasons import ReasonCode
from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import Job, JobId, JobState, NodeId, is_revision
from rota.core.model.placement import Placement, suspended_claim
from rota.core.state.array_turns import ArrayTurns
from rota.core.state.decayed_usage import Past
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.phases import STARTED_WHILE_STOPPING, Order, Phase
from rota.core.state.vacating import is_vacated

if TYPE_CHECKING:
    from rota.core.engine.protocols import Ledger

_FINAL_PHASES = {
    JobState.SUCCEEDED: Phase.SUCCEEDED,
    JobState.FAILED: Phase.FAILED,
    JobState.CANCELLED: Phase.CANCELLED,
}
_RUNNING_AFTER: Final[tuple[Phase, ...]] = tuple(STARTED_WHILE_STOPPING.get(phase, Phase.RUNNING) for phase in Phase)
"""The phase of a job that reports its start when a stop was already ordered."""


class State:
    """Owned by the engine. Claims are in `inventory`; what a stop has not vacated yet is in `vacating`."""

    __slots__ = (
        "dependents",
        "fragmented_device_s",
        "free_device_s",
        "inventory",
        "jobs",
        "ledger",
        "memory",
        "now_s",
        "past",
        "reserved",
        "seq",
        "turns",
        "vacating",
    )

    def __init__(self, of: Cluster | Inventory) -> None:
        """A fresh state of a cluster, or one with an existing inventory."""
        self.inventory = of if isinstance(of, Inventory) else Inventory(of)
        self.ledger: Ledger | None = None
        """The allocator's own accounts, notified of claims that end."""
        self.jobs: dict[JobId, LiveJob] = {}
        self.reserved: dict[JobId, LiveJob] = {}
        """Jobs that wait for their claimed devices to be vacated, oldest reservation first."""
        self.vacating: dict[JobId, tuple[LiveJob, Placement]] = {}
        """Jobs that have been ordered to leave these devices and have not answered yet."""
        self.dependents: dict[JobId, list[LiveJob]] = {}
        self.turns = ArrayTurns()
        self.memory: Any = None
        """What the policy remembered when this state was copied or saved, for the policy that adopts it."""
        self.past: dict[str, Past] = {}
        """Usage over time by the name of the component that counts it, as plain values."""
        self.seq = 0
        self.now_s = 0.0
        self.free_device_s = 0.0
        self.fragmented_device_s = 0.0

    def advance(self, now_s: float) -> None:
        """Advance the clock and add up idle device-seconds."""
        passed_s = now_s - self.now_s
        if passed_s > 0:
            free = self.inventory.free
            self.free_device_s += free * passed_s
            self.fragmented_device_s += (free - self.inventory.idle_free) * passed_s
            self.now_s = now_s
        elif passed_s < 0:
            raise InvariantBroken(f"time goes backwards: {self.now_s} s, then {now_s} s")

    def live(self, job_id: JobId) -> LiveJob:
        """The record of a job."""
        try:
            return self.jobs[job_id]
        except KeyError:
            raise RotaError(f"there is no job {job_id!r}") from None

    def node(self, node_id: NodeId) -> int:
        """The index of a node."""
        try:
            return self.inventory.by_name[node_id]
        except KeyError:
            raise RotaError(f"there is no node {node_id!r}") from None

    def add_node(self, node: Node) -> None:
        """Add a node. Its name must be new or that of a removed node, and its rack in no other domain."""
        known = self.inventory.by_name.get(node.id)
        if known is not None:
            account = self.inventory.nodes[known]
            if not account.removed:
                raise RotaError(f"there is a node {node.id!r} already")
            if not account.node.is_same_hardware(node) and self.is_in_use(known):
                raise RotaError(
                    f"node {node.id!r} was removed and jobs still run there; it can be added unchanged, "
                    "or with other hardware when they have ended"
                )
        for account in self.inventory.nodes:
            if not account.removed and account.node.rack == node.rack and account.node.domain != node.domain:
                raise RotaError(f"rack {node.rack!r} is in two domains: {account.node.domain!r} and {node.domain!r}")
        self.inventory.add(node)

    def is_in_use(self, index: int) -> bool:
        """Whether a node is claimed, or has not been vacated yet."""
        return self.inventory.nodes[index].users > 0 or any(
            slot.node == index for _, held in self.vacating.values() for slot in held
        )

    def admit(self, job: Job, nominal_rate: float, *, held: bool = False) -> LiveJob:
        """Add a job. Its dependencies must be known."""
        if job.id in self.jobs:
            raise RotaError(f"there is a job {job.id!r} already")
        for needed in job.depends_on:
            if needed not in self.jobs:
                raise RotaError(f"job {job.id}: it depends on {needed!r}, which is not known")
        live = LiveJob(job, self.seq, self.now_s, nominal_rate)
        self.seq += 1
        self.jobs[job.id] = live
        for needed in job.depends_on:
            if self.jobs[needed].state is not JobState.SUCCEEDED:
                live.unmet += 1
                self.dependents.setdefault(needed, []).append(live)
        if held:
            live.enter(Phase.HELD)
        else:
            self._contend(live)
        return live

    def _contend(self, live: LiveJob) -> bool:
        """Let a job wait for devices, unless something still keeps it from running. Return whether it does."""
        if not live.unmet:
            self.turns.take(live)
        live.enter(Phase.BLOCKED if live.unmet else Phase.WAITING)
        return not live.unmet

    def replace_request(self, live: LiveJob, job: Job) -> None:
        """Let a job without devices ask for more than before, though not devices, or for another place in the order."""
        is_same = job.gpu_milli == live.job.gpu_milli and is_revision(live.job, replace(job, roles=live.job.roles))
        if live.placement is not None or not is_same:
            raise InvariantBroken(f"job {live.job.id} holds devices or would become another; its request stays")
        live.job = job

    def hold(self, live: LiveJob) -> None:
        """Keep a waiting job that claims nothing from running until it is released."""
        live.enter(Phase.HELD)

    def release(self, live: LiveJob) -> None:
        """Let a held job run as soon as nothing else keeps it from that."""
        self._contend(live)
        live.since_s = self.now_s

    def postpone(self, live: LiveJob, retry_s: float) -> None:
        """Let a waiting job contend from a later moment on."""
        live.retry_s = retry_s
        live.unmet += 1
        live.enter(Phase.BLOCKED)

    def end_pause(self, live: LiveJob) -> bool:
        """End a job's pause after a failure. Return whether it contends now."""
        live.retry_s = None
        return self.meet_dependency(live)

    def meet_dependency(self, live: LiveJob) -> bool:
        """Count one obstacle less for a job that has not started. Return whether it contends now."""
        live.unmet -= 1
        return live.phase is Phase.BLOCKED and self._contend(live)

    def demote(self, live: LiveJob, demoted: bool) -> None:
        """Record whether a job lost its guarantee, because the tenants' guarantees can't hold it any more."""
        live.demoted = demoted

    def note_obstacle(self, live: LiveJob, code: ReasonCode | None) -> None:
        """Record which obstacle of a waiting job was journaled last."""
        live.wait_code = code

    def order_stop(self, live: LiveJob, held: Placement, cause: Cause) -> None:
        """Let a job leave the devices that it holds; they stay physically held until it answers."""
        live.follow(Order.STOP)
        live.stopping = cause
        _, leaving = self.vacating.get(live.job.id, (live, ()))
        self.vacating[live.job.id] = (live, leaving + held)

    def cancel_stopping(self, live: LiveJob) -> None:
        """Let a job that is being stopped end as cancelled, not wait again."""
        live.stopping = Cause.CANCELLED

    def give_up_claim(self, live: LiveJob) -> None:
        """Drop a job's claim on devices."""
        if live.placement is not None:
            self.inventory.give(live.placement, live.job.roles, live.job.exclusive)
            if self.ledger is not None:
                self.ledger.moved(live, live.placement, None, undo=False)
            live.set_placement(None)
        self.drop_reservation(live)

    def where(self, live: LiveJob) -> Placement:
        """What a job's tasks really hold; none of its devices if it is suspended and waits for them."""
        if live.suspended_on is not None and live.reserved:
            return suspended_claim(live.suspended_on)
        return live.placement or ()

    def order_suspend(self, live: LiveJob, held: Placement) -> None:
        """Let a job's tasks pause; their devices stay physically held until it answers."""
        live.follow(Order.SUSPEND)
        live.suspended_on = held
        self.vacating[live.job.id] = (live, held)

    def suspend(self, live: LiveJob, work: float) -> None:
        """Record that all tasks are paused."""
        self.vacating.pop(live.job.id, None)
        live.settle(self.now_s)
        live.run_since_s = None
        live.run_milli = 0
        live.work = work
        live.rate = 0.0
        live.since_s = self.now_s
        live.suspensions += 1
        live.enter(Phase.SUSPENDED)

    def resume(self, live: LiveJob) -> None:
        """Give a suspended job its devices back; the driver resumes it."""
        if live.phase is Phase.RESUME_RESERVED:
            del self.reserved[live.job.id]
        live.follow(Order.RESUME)
        live.since_s = self.now_s
        live.run_milli = live.gpu_milli

    def order_resize(self, live: LiveJob, before: Placement) -> None:
        """Let a job continue on other devices; it holds the former ones until it answers."""
        live.follow(Order.RESIZE_OR_MOVE)
        self.vacating[live.job.id] = (live, before)

    def withdraw_resize(self, live: LiveJob) -> None:
        """Forget where a job was to go from, before it is stopped instead of resized or moved."""
        del self.vacating[live.job.id]

    def resize(self, live: LiveJob, work: float, rate: float, work_from_s: float) -> None:
        """Record that a job runs on the devices that it claims, with what it keeps of what it had done by then."""
        self.vacating.pop(live.job.id, None)
        live.settle(self.now_s)
        live.go_on_with(work, self.now_s)
        live.run_milli = live.gpu_milli
        self.run(live, rate, work_from_s)

    def move(self, live: LiveJob, work: float, rate: float, work_from_s: float) -> None:
        """Record that a job runs elsewhere."""
        live.moves += 1
        live.suspended_on = None
        self.resize(live, work, rate, work_from_s)

    def share(self, live: LiveJob) -> None:
        """Let a job hold another fraction of its devices from now on."""
        live.settle(self.now_s)
        live.run_milli = live.gpu_milli

    def set_speed(self, live: LiveJob, work: float, rate: float) -> None:
        """Record what a running job has done, and its speed from now on."""
        live.settle(self.now_s)
        live.work = work
        live.rate = rate

    def leave_devices(self, live: LiveJob) -> None:
        """Free the devices of a job that only saves; it keeps its host resources until it ends."""
        held = live.placement or ()
        kept = suspended_claim(held)
        live.settle(self.now_s)
        self.inventory.give(held, live.job.roles, live.job.exclusive)
        self.inventory.take(kept, live.job.roles, live.job.exclusive)
        if self.ledger is not None:
            self.ledger.moved(live, held, kept, undo=False)
        live.set_placement(kept)
        live.run_milli = 0
        live.enter(Phase.SAVING)

    def reserve(self, live: LiveJob) -> None:
        """Let a job wait for its claimed devices to be vacated."""
        live.follow(Order.RESERVE)
        self.reserved[live.job.id] = live

    def drop_reservation(self, live: LiveJob) -> None:
        """Let a job wait no longer for devices to be vacated, if it does."""
        if live.reserved:
            live.follow(Order.DROP_RESERVATION)
            del self.reserved[live.job.id]

    def begin(self, live: LiveJob) -> None:
        """Give a waiting job its devices; the driver starts it."""
        if live.phase is Phase.RESERVED:
            del self.reserved[live.job.id]
        live.follow(Order.START)
        live.since_s = self.now_s
        live.run_milli = live.gpu_milli
        live.wait_code = None

    def run(self, live: LiveJob, rate: float, work_from_s: float) -> None:
        """Record that all tasks run."""
        now_s = self.now_s
        live.settle(now_s)
        live.enter(_RUNNING_AFTER[live.phase])
        live.suspended_on = None
        live.rate = rate
        live.run_since_s = now_s
        live.work_from_s = work_from_s
        if live.first_start_s is None:
            live.first_start_s = now_s
        else:
            live.overhead_s += work_from_s - now_s

    def renew(self, live: LiveJob, lease: Lease) -> None:
        """Give a job a lease, in place of the one that it had."""
        live.lease = lease

    def lapse(self, live: LiveJob, work: float) -> None:
        """Record that a job's lease is over; it stays on its devices and does nothing."""
        self.set_speed(live, work, 0.0)
        live.lease = None

    def stop(self, live: LiveJob, work: float) -> Cause:
        """Record that a stop that was ordered is complete. Return why it was ordered."""
        cause = live.stopping
        if cause is None:
            raise InvariantBroken(f"job {live.job.id} stopped without an order")
        has_run = live.run_since_s is not None or live.state is JobState.SUSPENDED
        if has_run and (cause is Cause.PREEMPTED or cause is Cause.MOVED):
            live.preemptions += 1
            live.undone += live.work_done(self.now_s) > work
        self.halt(live, work)
        return cause

    def interrupt(self, live: LiveJob, work: float) -> None:
        """Record that a run ended without an order and without a result."""
        self.halt(live, work)
        live.restarts += 1

    def halt(self, live: LiveJob, work: float) -> None:
        """Record that nothing of the job runs any more; `work` is what it keeps."""
        self.vacating.pop(live.job.id, None)
        if live.run_since_s is not None:
            live.settle(self.now_s)
            live.lost_work += max(live.work - work, 0.0)
            live.run_since_s = None
        live.work = work
        live.rate = 0.0
        if live.placement is None:
            live.lease = None
            live.enter(Phase.WAITING)
        else:
            live.enter(Phase.RESERVED)
        live.stopping = live.suspended_on = None
        live.since_s = self.now_s

    def finish(self, live: LiveJob, state: JobState) -> None:
        """Let a job that holds nothing end in its last state."""
        live.enter(_FINAL_PHASES[state])
        live.ended_s = self.now_s
        live.memo = None

    def forget(self, job_id: JobId) -> None:
        """Drop the record of a job that has ended and on which no other depends."""
        if not self.live(job_id).state.is_final:
            raise InvariantBroken(f"job {job_id} has not ended and can't be forgotten")
        del self.jobs[job_id]

    def is_clear(self, live: LiveJob) -> bool:
        """Whether the devices that a job claims are vacated."""
        return not self.vacating or is_vacated(live, self.vacating.values())

    def fork(self) -> State:
        """Return an independent copy; records of ended jobs stay shared."""
        copy = State(self.inventory.fork())
        twin = {name: live if live.state.is_final else live.fork() for name, live in self.jobs.items()}
        copy.jobs = twin
        copy.reserved = {name: twin[name] for name in self.reserved}
        copy.vacating = {name: (twin[name], held) for name, (_, held) in self.vacating.items()}
        copy.dependents = {name: [twin[live.job.id] for live in waiting] for name, waiting in self.dependents.items()}
        copy.turns = self.turns.fork(twin)
        copy.memory = self.memory
        copy.past = deepcopy(self.past)
        copy.seq = self.seq
        copy.now_s = self.now_s
        copy.free_device_s = self.free_device_s
        copy.fragmented_device_s = self.fragmented_device_s
        return copy
