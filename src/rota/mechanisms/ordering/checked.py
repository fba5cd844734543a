"""A user's ordering rule, with every answer checked before the list scheduler sees it."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any

from rota.core.state.decayed_usage import Past
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import JobView
from rota.mechanisms.ordering.rule import Groups, Learner, Turn
from rota.mechanisms.user_code import UserCode, as_number, as_numbers, is_plain

_TURN = "Turn(key), the key a tuple of numbers that ends in job.seq"


def checked_turn(
    turn: Callable[[JobView, float], Turn], function: str, user: UserCode
) -> Callable[[JobView, float], Turn]:
    """The function, refusing answers by which jobs can't be sorted."""

    def checked(job: JobView, now_s: float) -> Turn:
        answer = user.call(function, turn, job, now_s)
        if not isinstance(answer, Turn) or not isinstance(answer.key, tuple) or not answer.key:
            user.refuse(function, answer, _TURN)
        key = as_numbers(answer.key)
        if key is None or key[-1] != job.seq:
            user.refuse(function, answer, _TURN)
        slope = as_number(answer.slope)
        if slope is None or math.isinf(slope) or (slope and math.isinf(key[0])):
            user.refuse(function, answer, "a finite slope, 0 where the first number of the key is infinite")
        until_s = as_number(answer.until_s)
        if until_s is None or until_s <= now_s:
            user.refuse(function, answer, f"until_s after now ({now_s:g})")
        if not is_plain(answer.memo):
            user.refuse(function, answer, "a memo of None, numbers, text, or tuples of these")
        return Turn(key, slope, until_s, answer.memo)

    return checked


class CheckedLearner:
    """Passes on what jobs ended; refuses answers other than True and False, and a memory that JSON can't hold."""

    def __init__(self, learner: Learner, user: UserCode) -> None:
        self._learner = learner
        self._user = user
        self._name = type(learner).__name__

    @property
    def memory(self) -> Any:
        """What it has learned, None if it keeps nothing."""
        return self._user.memory(self._name, self._user.attribute(self._learner, "memory"))

    def ended(self, job: JobView, now_s: float) -> bool:
        """Whether all keys have to be computed again."""
        answer = self._user.call(f"{self._name}.ended", self._learner.ended, job, now_s)
        return self._user.flag(f"{self._name}.ended", answer)


class CheckedGroups:
    """Passes on what groups hold; refuses ranks and shares that are not tuples of numbers."""

    def __init__(self, groups: Groups, user: UserCode) -> None:
        self._groups = groups
        self._user = user
        self._name = type(groups).__name__
        user.require(groups, "open", "of", "share", "change", "rank", base="Groups")

    def open(self, past: dict[str, Past]) -> None:
        """Start with no holders."""
        self._user.call(f"{self._name}.open", self._groups.open, past)

    def of(self, job: JobView) -> Hashable:
        """The group that a job belongs to."""
        group = self._user.call(f"{self._name}.of", self._groups.of, job)
        if not isinstance(group, Hashable):
            self._user.refuse(f"{self._name}.of", group, "a value that can be a dict's key")
        return group

    def share(self, job: JobView, inventory: Inventory) -> tuple[float, ...]:
        """What a job of its group holds."""
        share = self._user.call(f"{self._name}.share", self._groups.share, job, inventory)
        return self._user.key(f"{self._name}.share", share, "a tuple of numbers")

    def change(self, group: Hashable, share: tuple[float, ...], sign: int, now_s: float, *, resumes: bool) -> None:
        """Add or remove a job's share."""
        self._user.call(f"{self._name}.change", self._groups.change, group, share, sign, now_s, resumes=resumes)

    def rank(self, group: Hashable, now_s: float) -> tuple[float, ...]:
        """A group's place in the order."""
        rank = self._user.call(f"{self._name}.rank", self._groups.rank, group, now_s)
        return self._user.key(f"{self._name}.rank", rank, "a tuple of numbers")
