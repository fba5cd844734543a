"""All that the engine knows, with the transitions that change it and keep its indexes true."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rota.core.errors import InvariantBroken, RotaError
from rota.core.messages.decisions import Cause
from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import Job, JobId, JobState, NodeId
from rota.core.model.placement import Placement, suspended_claim
from rota.core.state.decayed_usage import Past
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob

if TYPE_CHECKING:
    from rota.core.engine.protocols import Ledger


class State:
    """One owner, the engine. Claims live in `inventory`; what a stop has not vacated yet in `vacating`."""

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
        "vacating",
    )

    def __init__(self, of: Cluster | Inventory) -> None:
        """A fresh state of a cluster, or one around books that exist."""
        self.inventory = of if isinstance(of, Inventory) else Inventory(of)
        self.ledger: Ledger | None = None
        """The allocator's own books, told of claims that end."""
        self.jobs: dict[JobId, LiveJob] = {}
        self.reserved: dict[JobId, LiveJob] = {}
        """Jobs that wait for their claimed devices to be vacated, oldest reservation first."""
        self.vacating: dict[JobId, tuple[LiveJob, Placement]] = {}
        """Jobs that were told to leave these devices and have not answered yet."""
        self.dependents: dict[JobId, list[LiveJob]] = {}
        self.memory: Any = None
        """What the policy remembered when this state was copied or written down, for the one that adopts it."""
        self.past: dict[str, Past] = {}
        """What accounts have had over time: for each who counts it, plain values that it keeps up to date."""
        self.seq = 0
        self.now_s = 0.0
        self.free_device_s = 0.0
        self.fragmented_device_s = 0.0

    def advance(self, now_s: float) -> None:
        """Time passes; what lay idle meanwhile is added up."""
        passed_s = now_s - self.now_s
        if passed_s > 0:
            free = self.inventory.free
            self.free_device_s += free * passed_s
            self.fragmented_device_s += (free - self.inventory.idle_free) * passed_s
            self.now_s = now_s
        elif passed_s < 0:
            raise InvariantBroken(f"time runs backwards: {self.now_s} s, then {now_s} s")

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
        """A node joins. Its name must be new or that of a removed one, and its rack in no other domain."""
        known = self.inventory.by_name.get(node.id)
        if known is not None:
            books = self.inventory.nodes[known]
            if not books.removed:
                raise RotaError(f"there is a node {node.id!r} already")
            if not books.node.is_same_hardware(node) and self.is_in_use(known):
                raise RotaError(
                    f"node {node.id!r} was removed and jobs still run there; it can come back as it was, "
                    "or changed when they have ended"
                )
        for books in self.inventory.nodes:
            if not books.removed and books.node.rack == node.rack and books.node.domain != node.domain:
                raise RotaError(f"rack {node.rack!r} is in two domains: {books.node.domain!r} and {node.domain!r}")
        self.inventory.add(node)

    def is_in_use(self, index: int) -> bool:
        """Whether a node is claimed, or has not been vacated yet."""
        return self.inventory.nodes[index].users > 0 or any(
            slot.node == index for _, held in self.vacating.values() for slot in held
        )

    def admit(self, job: Job, nominal_rate: float) -> LiveJob:
        """A job joins. Its dependencies must be known."""
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
        return live

    def ask_anew(self, live: LiveJob, job: Job) -> None:
        """A job that holds nothing asks for more than before, though not devices; nothing else about it changes."""
        is_same = job.gpu_milli == live.job.gpu_milli and replace(job, roles=live.job.roles) == live.job
        if live.placement is not None or not is_same:
            raise InvariantBroken(f"job {live.job.id} holds devices or would become another; it can't ask anew")
        live.job = job

    def order_stop(self, live: LiveJob, held: Placement, cause: Cause) -> None:
        """The job must leave the devices it holds; they stay physically held until it answers."""
        live.stopping = cause
        _, leaving = self.vacating.get(live.job.id, (live, ()))
        self.vacating[live.job.id] = (live, leaving + held)

    def give_up_claim(self, live: LiveJob) -> None:
        """Drop a job's claim on devices."""
        if live.placement is not None:
            self.inventory.give(live.placement, live.job.roles, live.job.exclusive)
            if self.ledger is not None:
                self.ledger.moved(live, live.placement, None, undo=False)
            live.set_placement(None)
        if live.reserved:
            live.reserved = False
            del self.reserved[live.job.id]

    def where(self, live: LiveJob) -> Placement:
        """What a job's tasks really hold; one that rests and waits for its devices has none of them yet."""
        if live.reserved and live.suspended_on is not None:
            return suspended_claim(live.suspended_on)
        return live.placement or ()

    def order_suspend(self, live: LiveJob, held: Placement) -> None:
        """The job's tasks must rest; their devices stay physically held until it answers."""
        live.suspended_on = held
        self.vacating[live.job.id] = (live, held)

    def suspend(self, live: LiveJob, work: float) -> None:
        """All tasks rest."""
        self.vacating.pop(live.job.id, None)
        live.settle(self.now_s)
        live.run_since_s = None
        live.run_milli = 0
        live.work = work
        live.rate = 0.0
        live.since_s = self.now_s
        live.suspensions += 1
        live.state = JobState.SUSPENDED

    def resume(self, live: LiveJob) -> None:
        """The job's devices are its own again; the driver lets it go on."""
        if live.reserved:
            live.reserved = False
            del self.reserved[live.job.id]
        live.since_s = self.now_s
        live.run_milli = live.gpu_milli

    def leave_devices(self, live: LiveJob) -> None:
        """The job has no more use for its devices; what it has of the hosts it keeps until it ends."""
        held = live.placement or ()
        kept = suspended_claim(held)
        live.settle(self.now_s)
        self.inventory.give(held, live.job.roles, live.job.exclusive)
        self.inventory.take(kept, live.job.roles, live.job.exclusive)
        if self.ledger is not None:
            self.ledger.moved(live, held, kept, undo=False)
        live.set_placement(kept)
        live.run_milli = 0
        live.saves = True

    def reserve(self, live: LiveJob) -> None:
        """The job waits for its claimed devices to be vacated."""
        live.reserved = True
        self.reserved[live.job.id] = live

    def begin(self, live: LiveJob) -> None:
        """The job's devices are its own now; the driver is starting it."""
        if live.reserved:
            live.reserved = False
            del self.reserved[live.job.id]
        live.state = JobState.STARTING
        live.since_s = self.now_s
        live.run_milli = live.gpu_milli

    def running(self, live: LiveJob, rate: float, work_from_s: float) -> None:
        """All tasks run."""
        now_s = self.now_s
        live.settle(now_s)
        live.state = JobState.RUNNING
        live.suspended_on = None
        live.rate = rate
        live.run_since_s = now_s
        live.work_from_s = work_from_s
        if live.first_start_s is None:
            live.first_start_s = now_s
        else:
            live.overhead_s += work_from_s - now_s

    def lapse(self, live: LiveJob, work: float) -> None:
        """The job's lease is over; it stays on its devices and does nothing."""
        live.settle(self.now_s)
        live.work = work
        live.rate = 0.0
        live.lease = None

    def halt(self, live: LiveJob, work: float) -> None:
        """Nothing of the job runs any more; `work` is what it keeps."""
        self.vacating.pop(live.job.id, None)
        if live.run_since_s is not None:
            live.settle(self.now_s)
            live.lost_work += max(live.work - work, 0.0)
            live.run_since_s = None
        live.work = work
        live.rate = 0.0
        if live.placement is None:
            live.lease = None
        live.stopping = None
        live.suspended_on = None
        live.saves = False
        live.since_s = self.now_s
        live.state = JobState.WAITING

    def finish(self, live: LiveJob, state: JobState) -> None:
        """The job's last state."""
        live.state = state
        live.ended_s = self.now_s
        live.memo = None

    def forget(self, job_id: JobId) -> None:
        """Drop the record of a job that has ended and on which no other waits."""
        if not self.live(job_id).state.is_final:
            raise InvariantBroken(f"job {job_id} has not ended and can't be forgotten")
        del self.jobs[job_id]

    def is_clear(self, live: LiveJob) -> bool:
        """Whether nobody is still on the devices that a job claims.

        Where host resources, shares or whole nodes are at stake, anyone still leaving the node counts.
        A job that is being resized is not in its own way.
        """
        if not self.vacating:
            return True
        job = live.job
        placement = live.placement or ()
        for leaver, held in self.vacating.values():
            if leaver is live:
                if live.stopping is not None:
                    return False
                continue
            for old in held:
                for new in placement:
                    if old.node != new.node:
                        continue
                    if old.devices & new.devices or job.exclusive or leaver.job.exclusive:
                        return False
                    if job.roles[new.role].needs_host and leaver.job.roles[old.role].needs_host:
                        return False
        return True

    def fork(self) -> State:
        """An independent copy of everything that still matters: jobs that ended stay shared."""
        copy = State(self.inventory.fork())
        twin = {name: live if live.state.is_final else live.fork() for name, live in self.jobs.items()}
        copy.jobs = twin
        copy.reserved = {name: twin[name] for name in self.reserved}
        copy.vacating = {name: (twin[name], held) for name, (_, held) in self.vacating.items()}
        copy.dependents = {name: [twin[live.job.id] for live in waiting] for name, waiting in self.dependents.items()}
        copy.memory = self.memory
        copy.past = deepcopy(self.past)
        copy.seq = self.seq
        copy.now_s = self.now_s
        copy.free_device_s = self.free_device_s
        copy.fragmented_device_s = self.fragmented_device_s
        return copy
