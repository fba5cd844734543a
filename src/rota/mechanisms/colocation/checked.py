"""A user's co-location rule, with every answer checked before the scheduler sees it."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Any

from rota.core.engine.draft import Draft
from rota.core.messages.reasons import Reason
from rota.core.model.job import WHOLE, DeviceType, Job
from rota.core.model.placement import Placement, Slot
from rota.core.state.job_record import LiveJob
from rota.mechanisms.colocation.groups import DeviceGroups
from rota.mechanisms.colocation.regroup import Group, SameDevices
from rota.mechanisms.colocation.rule import ColocationRule
from rota.mechanisms.user_code import UserCode, as_count, as_number, is_sequence

_FUNCTIONS = (
    "order",
    "is_shareable",
    "admit",
    "next_admission_s",
    "fractions",
    "memory_fractions",
    "fits_memory",
    "find_free",
    "placement_key",
    "form_groups",
    "can_run_with",
    "select_to_move",
    "observe",
    "throttled",
    "victims",
    "recall",
    "forget",
)


class CheckedColocationRule:
    """Answers as the user's rule does; refuses costs, fractions and jobs that the scheduler can't use."""

    def __init__(self, rule: ColocationRule, user: UserCode) -> None:
        self._rule = rule
        self._user = user
        self._name = type(rule).__name__
        user.require(rule, *_FUNCTIONS, base="DefaultColocationRule")
        self.time_sliced = bool(user.attribute(rule, "time_sliced"))
        self.overlaps = bool(user.attribute(rule, "overlaps"))
        self.moves_parts = bool(user.attribute(rule, "moves_parts"))
        self.refusals_stand = bool(user.attribute(rule, "refusals_stand"))
        self.observes_nodes = bool(user.attribute(rule, "observes_nodes"))
        regroup_s = as_number(user.attribute(rule, "regroup_s"))
        if regroup_s is None or regroup_s <= 0:
            expected = "a number of seconds above 0, or math.inf for never"
            user.refuse_attribute(f"{self._name}.regroup_s", user.attribute(rule, "regroup_s"), expected)
        self.regroup_s: float = regroup_s

    def _call(self, name: str, *args: Any, **named: Any) -> Any:
        return self._user.call(f"{self._name}.{name}", getattr(self._rule, name), *args, **named)

    def order(self, live: LiveJob, now_s: float) -> tuple[float, ...]:
        """The sort key of a waiting job."""
        return self._user.key(f"{self._name}.order", self._call("order", live, now_s), "a tuple of numbers")

    def is_shareable(self, job: Job) -> bool:
        """Whether a job may be co-located."""
        return self._user.flag(f"{self._name}.is_shareable", self._call("is_shareable", job))

    def admit(
        self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType, now_s: float
    ) -> tuple[float, ...] | None:
        """The cost of co-locating a job with hosts, None to refuse."""
        cost = self._call("admit", live, hosts, kind, now_s)
        if cost is None:
            return None
        return self._user.key(f"{self._name}.admit", cost, "a tuple of numbers, the smallest the best; or None")

    def next_admission_s(self, waiting: LiveJob, now_s: float) -> float:
        """When a refused job may be admitted."""
        found = self._call("next_admission_s", waiting, now_s)
        return self._user.moment(f"{self._name}.next_admission_s", found, now_s)

    def fractions(self, jobs: Sequence[LiveJob], now_s: float, room: int, groups: DeviceGroups) -> Sequence[int]:
        """The fraction of each job, in thousandths of a device."""
        answer = self._call("fractions", jobs, now_s, room, groups)
        found = self._thousandths("fractions", answer, len(jobs))
        if sum(found) > WHOLE:
            self._user.refuse(f"{self._name}.fractions", answer, f"fractions that add up to at most {WHOLE}")
        return found

    def memory_fractions(self, jobs: Sequence[LiveJob], room: int | None) -> Sequence[int]:
        """The thousandths of its requested memory that each job keeps."""
        return self._thousandths("memory_fractions", self._call("memory_fractions", jobs, room), len(jobs))

    def _thousandths(self, name: str, answer: Any, count: int) -> list[int]:
        counts = [as_count(each) for each in answer] if is_sequence(answer, count) else []
        found = [each for each in counts if each is not None and 1 <= each <= WHOLE]
        if len(found) != count:
            expected = f"a whole number of thousandths, 1 to {WHOLE}, for each of {count} jobs"
            self._user.refuse(f"{self._name}.{name}", answer, expected)
        return found

    def fits_memory(self, live: LiveJob, hosts: Sequence[LiveJob], memory_bytes: int | None) -> bool:
        """Whether a device has memory for a job and its hosts."""
        return self._user.flag(f"{self._name}.fits_memory", self._call("fits_memory", live, hosts, memory_bytes))

    def find_free(self, live: LiveJob, draft: Draft, groups: DeviceGroups) -> Placement | Reason:
        """A placement that needs no admission, or the reason why there is none."""
        found = self._call("find_free", live, draft, groups)
        if isinstance(found, Reason):
            return found
        return self._placement("find_free", found, "a Reason or a tuple of Slot")

    def _placement(self, name: str, found: Any, expected: str) -> Placement:
        if not isinstance(found, tuple) or not all(isinstance(slot, Slot) for slot in found):
            self._user.refuse(f"{self._name}.{name}", found, expected)
        return found

    def placement_key(self, job: Job) -> Hashable:
        """What decides about `find_free`."""
        key = self._call("placement_key", job)
        try:
            hash(key)
        except TypeError:
            self._user.refuse(f"{self._name}.placement_key", key, "a value that can be a dict's key")
        return key  # type: ignore[no-any-return]  # anything that has a hash

    def form_groups(self, jobs: Sequence[LiveJob], devices: int, together: SameDevices) -> list[Group]:
        """The groups to run, in order of precedence."""
        groups = self._call("form_groups", jobs, devices, together)
        is_list = isinstance(groups, list) and all(isinstance(group, list) and group for group in groups)
        members = [live for group in groups for live in group] if is_list else [None]
        if not all(any(live is job for job in jobs) for live in members) or len(set(members)) < len(members):
            expected = "a list of lists of the given jobs, each job at most once"
            self._user.refuse(f"{self._name}.form_groups", groups, expected)
        return list(groups)

    def can_run_with(self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType) -> bool:
        """Whether a job can be co-located with hosts."""
        return self._user.flag(f"{self._name}.can_run_with", self._call("can_run_with", live, hosts, kind))

    def select_to_move(self, jobs: Sequence[LiveJob], *, jobs_wait: bool) -> LiveJob | None:
        """The job of a group that should move to free devices."""
        found = self._call("select_to_move", jobs, jobs_wait=jobs_wait)
        if found is None:
            return None
        return self._jobs("select_to_move", [found], jobs, "one of the given jobs, or None")[0]

    def observe(self, live: LiveJob, groups: DeviceGroups) -> Iterable[LiveJob]:
        """The jobs whose fractions should be computed again."""
        return self._jobs("observe", self._call("observe", live, groups), None, "a list of jobs")

    def throttled(self, live: LiveJob, groups: DeviceGroups) -> Placement:
        """The placement of a job that is not shareable."""
        return self._placement("throttled", self._call("throttled", live, groups), "a tuple of Slot")

    def victims(self, live: LiveJob, holders: Sequence[LiveJob]) -> Sequence[LiveJob]:
        """The jobs that may be preempted, in order."""
        return self._jobs("victims", self._call("victims", live, holders), holders, "a list of the given holders")

    def _jobs(self, name: str, found: Any, among: Sequence[LiveJob] | None, expected: str) -> list[LiveJob]:
        is_list = isinstance(found, Collection) and not isinstance(found, str | bytes)
        jobs = [live for live in found if isinstance(live, LiveJob)] if is_list else []
        if not is_list or len(jobs) < len(found) or (among is not None and not set(jobs) <= set(among)):
            self._user.refuse(f"{self._name}.{name}", found, expected)
        return list(dict.fromkeys(jobs))

    @property
    def memory(self) -> Any:
        """What the rule remembers."""
        return self._user.memory(self._name, self._user.attribute(self._rule, "memory"))

    def recall(self, memory: Any, jobs: dict[int, LiveJob]) -> None:
        """Restore what the rule remembered."""
        self._call("recall", memory, jobs)

    def forget(self, live: LiveJob) -> None:
        """Pass on that a job has ended."""
        self._call("forget", live)
