"""Contract between a co-location policy and the co-location scheduler, cut by meaning into small protocols.

A policy subclasses `DefaultColocationRule` and implements `admit`. It overrides `order`, `is_shareable` and `fractions`
where first in first out, whole devices and equal fractions are not what it wants. All other methods are for policies
that do more: place fractions of devices, regroup jobs, observe speeds, preempt, or remember something.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Protocol

from rota.core.engine.draft import Draft
from rota.core.messages.reasons import Reason
from rota.core.model.job import WHOLE, DeviceType, Job
from rota.core.model.placement import Placement
from rota.core.state.job_record import LiveJob
from rota.mechanisms.colocation.groups import DeviceGroups, may_share
from rota.mechanisms.colocation.regroup import Group, SameDevices


class AdmissionRule(Protocol):
    """Decides which job is served first, and which running jobs it may be co-located with."""

    def order(self, live: LiveJob, now_s: float) -> tuple[float, ...]:
        """Return the sort key of a waiting job; the smallest is served first, ties by submission."""

    def is_shareable(self, job: Job) -> bool:
        """Return whether a job may be co-located at all; otherwise it gets exactly what it requests."""

    def admit(
        self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType, now_s: float
    ) -> tuple[float, ...] | None:
        """Return the cost of co-locating a job with `hosts`, a smaller one being better; None to refuse."""

    @property
    def refusals_stand(self) -> bool:
        """Whether a refusal of `admit` holds for as long as the group does not change."""

    def next_admission_s(self, waiting: LiveJob, now_s: float) -> float:
        """Return when a waiting job may be admitted to a group that refuses it now; infinite for never."""


class FractionRule(Protocol):
    """Decides how a group of co-located jobs divides its devices and their memory."""

    @property
    def time_sliced(self) -> bool:
        """Whether the jobs of a group are time-sliced; otherwise they are packed and run concurrently."""

    def fractions(self, jobs: Sequence[LiveJob], now_s: float, room: int, groups: DeviceGroups) -> Sequence[int]:
        """Return the fraction of each job of a group, in thousandths of a device, of the `room` it has in total."""

    def memory_fractions(self, jobs: Sequence[LiveJob], room: int | None) -> Sequence[int]:
        """Return the thousandths of its requested memory that each job keeps on a device of `room` bytes."""

    def fits_memory(self, live: LiveJob, hosts: Sequence[LiveJob], memory_bytes: int | None) -> bool:
        """Return whether a device has memory for a job and its hosts, beyond the check of their requests."""


class FreeDeviceRule(Protocol):
    """Decides where a job runs without co-location, and where tasks that request fractions go."""

    def find_free(self, live: LiveJob, draft: Draft, groups: DeviceGroups) -> Placement | Reason:
        """Return a placement that needs no admission, or the reason why there is none.

        The rule may reclaim in the draft what jobs hold beyond the fractions they requested.
        """

    def placement_key(self, job: Job) -> Hashable:
        """Return what decides about `find_free` in addition to the allocator's equivalence key."""

    @property
    def moves_parts(self) -> bool:
        """Whether consolidation may move tasks that hold fractions of devices."""

    @property
    def overlaps(self) -> bool:
        """Whether a job loads its data while its predecessor on the same devices saves a checkpoint."""


class RegroupingRule(Protocol):
    """Decides which groups are formed from scratch, and which job leaves a group for free devices."""

    @property
    def regroup_s(self) -> float:
        """Seconds between two regroupings while jobs wait; infinite for none."""

    def form_groups(self, jobs: Sequence[LiveJob], devices: int, together: SameDevices) -> list[Group]:
        """Return the groups to run on that many devices, in order of precedence; all other jobs wait."""

    def can_run_with(self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType) -> bool:
        """Return whether a job can be co-located with `hosts` at all on devices of that type."""

    def select_to_move(self, jobs: Sequence[LiveJob], *, jobs_wait: bool) -> LiveJob | None:
        """Return the job of a group that should move to free devices of its own, if there is one."""


class ObservationRule(Protocol):
    """Adapts fractions to the speeds that jobs are observed to run at."""

    @property
    def observes_nodes(self) -> bool:
        """Whether neighbours on the same node matter, not only those on the same devices."""

    def observe(self, live: LiveJob, groups: DeviceGroups) -> Iterable[LiveJob]:
        """Record the present speed of a running job; return the jobs whose fractions should be recomputed."""

    def throttled(self, live: LiveJob, groups: DeviceGroups) -> Placement:
        """Return the placement, on the same devices, of a job that is not shareable, throttled for its neighbours."""


class DisplacementRule(Protocol):
    """Decides which jobs are preempted."""

    def victims(self, live: LiveJob, holders: Sequence[LiveJob]) -> Sequence[LiveJob]:
        """Return the jobs that may be preempted to place a job, in the order in which they are tried."""


class RuleMemory(Protocol):
    """State of a rule between plans."""

    @property
    def memory(self) -> Any:
        """Serialisable state of the rule, None if it has none."""

    def recall(self, memory: Any, jobs: dict[int, LiveJob]) -> None:
        """Restore what `memory` returned; jobs by sequence number."""

    def forget(self, live: LiveJob) -> None:
        """Handle the end of a job: learn from it, and drop what is stored about it."""


class ColocationRule(
    AdmissionRule,
    FractionRule,
    FreeDeviceRule,
    RegroupingRule,
    ObservationRule,
    DisplacementRule,
    RuleMemory,
    Protocol,
):
    """All that the co-location scheduler asks of a policy. `DefaultColocationRule` has defaults for all but `admit`."""


class DefaultColocationRule:
    """Base of co-location policies: first in first out, packed, equal fractions, no preemption, no memory."""

    time_sliced = False
    migrates = False
    """Whether the last job of a group moves to free devices when no job waits."""
    overlaps = False
    observes_nodes = False
    moves_parts = True
    refusals_stand = True
    regroup_s = math.inf

    def order(self, live: LiveJob, now_s: float) -> tuple[float, ...]:
        """First in first out."""
        return (live.seq,)

    def is_shareable(self, job: Job) -> bool:
        """Jobs of one role, of fixed size and without hard locality that request whole devices."""
        return may_share(job) and not job.roles[0].is_fraction

    def next_admission_s(self, waiting: LiveJob, now_s: float) -> float:
        """Never: only an event changes what is admitted."""
        return math.inf

    def fractions(self, jobs: Sequence[LiveJob], now_s: float, room: int, groups: DeviceGroups) -> Sequence[int]:
        """Equal fractions."""
        return [WHOLE // len(jobs)] * len(jobs)

    def memory_fractions(self, jobs: Sequence[LiveJob], room: int | None) -> Sequence[int]:
        """All of the requested memory."""
        return [WHOLE] * len(jobs)

    def fits_memory(self, live: LiveJob, hosts: Sequence[LiveJob], memory_bytes: int | None) -> bool:
        """Rely on the inventory, which checks the requested memory."""
        return True

    def find_free(self, live: LiveJob, draft: Draft, groups: DeviceGroups) -> Placement | Reason:
        """Take the allocator's offer."""
        return draft.offer(live)

    def placement_key(self, job: Job) -> Hashable:
        """Model, priority and labels."""
        return (job.model, job.priority, job.labels)

    def form_groups(self, jobs: Sequence[LiveJob], devices: int, together: SameDevices) -> list[Group]:
        """No groups; not called while `regroup_s` is infinite."""
        return []

    def can_run_with(self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType) -> bool:
        """Any jobs."""
        return True

    def select_to_move(self, jobs: Sequence[LiveJob], *, jobs_wait: bool) -> LiveJob | None:
        """The last job of the group, if the rule migrates and no job waits."""
        return jobs[-1] if self.migrates and not jobs_wait else None

    def observe(self, live: LiveJob, groups: DeviceGroups) -> Iterable[LiveJob]:
        """Ignore speeds."""
        return ()

    def throttled(self, live: LiveJob, groups: DeviceGroups) -> Placement:
        """The present placement."""
        return live.placement or ()

    def victims(self, live: LiveJob, holders: Sequence[LiveJob]) -> Sequence[LiveJob]:
        """No preemption."""
        return ()

    @property
    def memory(self) -> Any:
        """No state."""
        return None

    def recall(self, memory: Any, jobs: dict[int, LiveJob]) -> None:
        """Restore nothing."""

    def forget(self, live: LiveJob) -> None:
        """Drop nothing."""
