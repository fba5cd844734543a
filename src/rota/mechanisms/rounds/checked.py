"""A user's share rule, with every answer checked before the round scheduler sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.mechanisms.rounds.rule import (
    NO_PARTNER,
    Contender,
    RoundJob,
    ShareQuestion,
    ShareRule,
    Shares,
    members_of,
    tasks_of_contender,
)
from rota.mechanisms.user_code import UserCode, as_numbers, is_sequence

_ROUNDING = 1e-6


class CheckedShareRule:
    """Answers as the user's rule does; refuses shares of unknown jobs, and shares that no time can be divided by."""

    def __init__(self, rule: ShareRule, user: UserCode) -> None:
        self._rule = rule
        self._user = user
        self._name = type(rule).__name__
        user.require(rule, "shares", "recall", base="DefaultShareRule")
        self.sees_types = bool(user.attribute(rule, "sees_types"))
        self.packs = bool(user.attribute(rule, "packs"))
        self.backfills = bool(user.attribute(rule, "backfills"))

    def shares(self, question: ShareQuestion) -> Shares:
        """The rule's shares, if those of each job add up to at most 1."""
        function = f"{self._name}.shares"
        answer = self._user.call(function, self._rule.shares, question)
        if not isinstance(answer, Mapping):
            self._user.refuse(function, answer, "a dict of shares by contender, such as {(job.seq,): [0.5, 0.5]}")
        jobs = {job.seq: job for job in question.jobs}
        shares: dict[Contender, tuple[float, ...]] = {}
        totals: dict[int, float] = {}
        for contender, row in answer.items():
            self._check_contender(function, contender, jobs)
            shares[contender] = self._row(function, contender, row, question)
            for seq in members_of(contender):
                totals[seq] = totals.get(seq, 0.0) + sum(shares[contender])
        for seq, total in totals.items():
            if total > 1 + _ROUNDING:
                self._user.refuse(
                    function, answer, f"shares of job number {seq} that add up to at most 1, not {total:g}"
                )
        return shares

    def _check_contender(self, function: str, contender: object, jobs: Mapping[int, RoundJob]) -> None:
        """Refuse what is neither one job of the question, at one of its sizes, nor a pair of two."""
        is_tuple = isinstance(contender, tuple) and all(type(number) is int for number in contender)
        if not is_tuple or not isinstance(contender, tuple) or not contender:
            self._user.refuse(function, contender, "contenders as (job.seq,)")
        if len(contender) == 2 and not self.packs:
            self._user.refuse(function, contender, "contenders of one job each, as packs is False")
        is_known = all(seq in jobs for seq in members_of(contender))
        is_pair = len(contender) == 2 and contender[0] < contender[1]
        is_sized = len(contender) == 3 and contender[1] == NO_PARTNER
        if not is_known or not (len(contender) == 1 or is_pair or is_sized):
            self._user.refuse(function, contender, "the seq of a job of the question, or of two, the smaller first")
        sizes = [size.tasks for size in jobs[contender[0]].sizes]
        if is_sized and tasks_of_contender(contender) not in sizes:
            among = f"one of {sizes}" if sizes else "no number, as sizes are not decided here"
            self._user.refuse(function, contender, f"as the number of tasks {among}")

    def _row(self, function: str, contender: Contender, row: object, question: ShareQuestion) -> tuple[float, ...]:
        types = len(question.types)
        expected = f"for {contender} a list of {types} shares from 0 to 1, one for each device type"
        if not is_sequence(row, types):
            self._user.refuse(function, row, expected)
        found = as_numbers(row)  # type: ignore[arg-type]  # is_sequence has seen that it can be iterated
        if found is None or not all(-_ROUNDING <= share <= 1 + _ROUNDING for share in found):
            self._user.refuse(function, row, expected)
        return tuple(min(max(share, 0.0), 1.0) for share in found)

    @property
    def memory(self) -> Any:
        """What the rule remembers."""
        return self._user.memory(self._name, self._user.attribute(self._rule, "memory"))

    def recall(self, memory: Any) -> None:
        """Restore what the rule remembered."""
        self._user.call(f"{self._name}.recall", self._rule.recall, memory)
