"""What a policy that shares devices says of them: who goes first, who may join whom, and who has how much."""

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
from rota.mechanisms.colocation.regroup import Crew, Near


class ColocationRule(Protocol):
    """Who goes first, who may join whom, and how a group shares its devices out."""

    @property
    def turns(self) -> bool:
        """Whether the jobs of a group have the devices in turn; otherwise they run beside each other."""

    @property
    def overlaps(self) -> bool:
        """Whether the next job loads on devices while the one before only saves."""

    @property
    def moves_parts(self) -> bool:
        """Whether tasks with parts of devices may be moved to any others that have room."""

    @property
    def is_steady(self) -> bool:
        """Whether a job that may not join a group may not do so later either, as long as the group stays as it is."""

    def shares(self, job: Job) -> bool:
        """Whether a job takes part in sharing at all; others have what they ask for to themselves."""

    def order(self, live: LiveJob, now_s: float) -> tuple[float, ...]:
        """A key; the least is looked at first."""

    def free(self, live: LiveJob, draft: Draft, guests: DeviceGroups) -> Placement | Reason:
        """Devices, or parts of them, that a job can have without anybody's leave, or why there are none.

        Those who share devices may have to give back in the draft what they have beyond what they asked for.
        """

    def joins(
        self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType, now_s: float
    ) -> tuple[float, ...] | None:
        """How good a group is for a job, less is better; None if it may not join."""

    def has_room(self, live: LiveJob, hosts: Sequence[LiveJob], memory_bytes: int | None) -> bool:
        """Whether a group's devices have memory for a job too, by more than what they ask for."""

    def looks_at(self, job: Job) -> Hashable:
        """What of a job decides which devices it can have without anybody's leave, beside its shape."""

    @property
    def looks_around(self) -> bool:
        """Whether it matters who else is on a job's nodes."""

    def parts(self, jobs: Sequence[LiveJob], now_s: float, room: int, guests: DeviceGroups) -> Sequence[int]:
        """Thousandths of the devices for each job of a group, of so many that those outside of it leave."""

    def held_back(self, live: LiveJob, guests: DeviceGroups) -> Placement:
        """What a job that takes no part in sharing should hold of its devices, by who else is near."""

    def memory_parts(self, jobs: Sequence[LiveJob], room: int | None) -> Sequence[int]:
        """Thousandths of the memory it asks for that each job of a group keeps on devices of so many bytes."""

    def mover(self, jobs: Sequence[LiveJob], *, somebody_waits: bool) -> LiveJob | None:
        """Who of a group should have free devices to itself."""

    def again_s(self, waiting: LiveJob, now_s: float) -> float:
        """When a job that waits may join others whom it may not join now."""

    def bears(self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType) -> bool:
        """Whether a job can run beside others at all."""

    @property
    def regroup_s(self) -> float:
        """How often groups are formed anew while somebody waits; infinite for never."""

    def crews(self, jobs: Sequence[LiveJob], devices: int, near: Near) -> list[Crew]:
        """The groups that these jobs should form on so many devices; first come first. Others have to wait."""

    def saw(self, live: LiveJob, guests: DeviceGroups) -> Iterable[LiveJob]:
        """A job is seen to run at its present speed among those around it; who should have another part for that."""

    def left(self, live: LiveJob) -> None:
        """A job is gone."""

    def yields(self, live: LiveJob, holders: Sequence[LiveJob]) -> Sequence[LiveJob]:
        """Who may be stopped so that a job gets devices, first come first."""

    @property
    def memory(self) -> Any:
        """What it must remember, as a serialisable value."""

    def recall(self, memory: Any, jobs: dict[int, LiveJob]) -> None:
        """Take up what was remembered."""


class DefaultColocationRule:
    """The rule of those who need no more than who may join whom: equal parts, first in first out."""

    turns = False
    migrates = False
    """Whether who came last to a group moves to free devices for which nobody waits."""
    overlaps = False
    looks_around = False
    moves_parts = True
    is_steady = True
    regroup_s = math.inf

    def shares(self, job: Job) -> bool:
        """Those that ask for whole devices and can hold part of them."""
        return may_share(job) and not job.roles[0].is_fraction

    def order(self, live: LiveJob, now_s: float) -> tuple[float, ...]:
        """Who came first."""
        return (live.seq,)

    def free(self, live: LiveJob, draft: Draft, guests: DeviceGroups) -> Placement | Reason:
        """What the allocator offers."""
        return draft.offer(live)

    def has_room(self, live: LiveJob, hosts: Sequence[LiveJob], memory_bytes: int | None) -> bool:
        """As the inventory says by what they ask for."""
        return True

    def looks_at(self, job: Job) -> Hashable:
        """Who it is and what it says."""
        return (job.model, job.priority, job.labels)

    def parts(self, jobs: Sequence[LiveJob], now_s: float, room: int, guests: DeviceGroups) -> Sequence[int]:
        """Equal parts."""
        return [WHOLE // len(jobs)] * len(jobs)

    def held_back(self, live: LiveJob, guests: DeviceGroups) -> Placement:
        """What it holds."""
        return live.placement or ()

    def memory_parts(self, jobs: Sequence[LiveJob], room: int | None) -> Sequence[int]:
        """All of it."""
        return [WHOLE] * len(jobs)

    def mover(self, jobs: Sequence[LiveJob], *, somebody_waits: bool) -> LiveJob | None:
        """Nobody, or who came last if nobody waits."""
        return jobs[-1] if self.migrates and not somebody_waits else None

    def again_s(self, waiting: LiveJob, now_s: float) -> float:
        """Never, unless something happens."""
        return math.inf

    def bears(self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType) -> bool:
        """As far as is known."""
        return True

    def crews(self, jobs: Sequence[LiveJob], devices: int, near: Near) -> list[Crew]:
        """Never asked for."""
        return []

    def saw(self, live: LiveJob, guests: DeviceGroups) -> Iterable[LiveJob]:
        """Speeds do not matter."""
        return ()

    def left(self, live: LiveJob) -> None:
        """Nothing to forget."""

    def yields(self, live: LiveJob, holders: Sequence[LiveJob]) -> Sequence[LiveJob]:
        """Nobody."""
        return ()

    @property
    def memory(self) -> Any:
        """Nothing."""
        return None

    def recall(self, memory: Any, jobs: dict[int, LiveJob]) -> None:
        """Nothing."""
