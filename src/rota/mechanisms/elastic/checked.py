"""A user's elastic rule, with every answer checked before the scheduler sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.core.model.job import JobId
from rota.core.state.job_record import LiveJob
from rota.mechanisms.elastic.rule import Candidate, SizePlan, SizeQuestion, SizeRule, Target
from rota.mechanisms.user_code import UserCode, as_count, as_number


class CheckedSizeRule:
    """Answers as the user's rule does; refuses plans that name unknown jobs, sizes or types."""

    def __init__(self, rule: SizeRule, user: UserCode) -> None:
        self._rule = rule
        self._user = user
        self._name = type(rule).__name__
        user.require(rule, "plan", "observe", "forget", "attach", "recall", base="DefaultSizeRule")
        interval_s = user.attribute(rule, "interval_s")
        if interval_s is not None:
            seconds = as_number(interval_s)
            if seconds is None or not 0 < seconds < float("inf"):
                user.refuse_attribute(f"{self._name}.interval_s", interval_s, "None or a number of seconds above 0")
        self.interval_s: float | None = interval_s
        self.replans_without_events = bool(user.attribute(rule, "replans_without_events"))
        self.plans_cpu_jobs = bool(user.attribute(rule, "plans_cpu_jobs"))
        self.defragments = bool(user.attribute(rule, "defragments"))

    def plan(self, question: SizeQuestion) -> SizePlan:
        """The rule's plan, if every target is a size that its job may have."""
        function = f"{self._name}.plan"
        plan = self._user.call(function, self._rule.plan, question)
        if not isinstance(plan, SizePlan) or not isinstance(plan.targets, Mapping):
            self._user.refuse(function, plan, "a SizePlan whose targets are a dict of Target by job number (seq)")
        candidates = {found.seq: found for found in question.candidates}
        targets = {}
        for seq, target in plan.targets.items():
            found = candidates.get(seq)
            if found is None:
                self._user.refuse(function, plan, f"targets for candidates only; {seq!r} is not the seq of one")
            targets[seq] = self._target(found, target, question)
        until_s = as_number(plan.until_s)
        if until_s is None or until_s <= question.now_s:
            self._user.refuse(function, plan, f"until_s after now ({question.now_s:g})")
        return SizePlan(targets, until_s)

    def _target(self, found: Candidate, target: object, question: SizeQuestion) -> Target:
        function = f"{self._name}.plan"
        if not isinstance(target, Target):
            self._user.refuse(function, target, f"a Target for job {found.live.job.id}")
        tasks = as_count(target.tasks)
        if tasks is None or tasks not in found.sizes:
            sizes = f"one of its sizes {found.sizes}" if found.sizes else "no target: it fits on no node that is up"
            self._user.refuse(function, target, f"for job {found.live.job.id} {sizes}")
        types = [pool.device_type for pool in question.pools]
        if target.device_type is not None and target.device_type not in types:
            self._user.refuse(function, target, f"a device type of the cluster ({', '.join(types)}) or None")
        return Target(tasks, target.device_type)

    def observe(self, live: LiveJob, nodes: int, now_s: float) -> None:
        """Pass on the speed at which a job runs."""
        self._user.call(f"{self._name}.observe", self._rule.observe, live, nodes, now_s)

    def forget(self, live: LiveJob) -> None:
        """Pass on that a job has ended."""
        self._user.call(f"{self._name}.forget", self._rule.forget, live)

    def attach(self, jobs: dict[JobId, LiveJob]) -> None:
        """Pass on all jobs that the engine knows."""
        self._user.call(f"{self._name}.attach", self._rule.attach, jobs)

    @property
    def memory(self) -> Any:
        """What the rule remembers."""
        return self._user.memory(self._name, self._user.attribute(self._rule, "memory"))

    def recall(self, memory: Any) -> None:
        """Restore what the rule remembered."""
        self._user.call(f"{self._name}.recall", self._rule.recall, memory)
