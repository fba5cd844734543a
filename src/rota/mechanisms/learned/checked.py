"""A user's chooser, with every answer checked before tasks are placed by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rota.core.state.job_record import LiveJob
from rota.mechanisms.learned.interval_placement import Chooser
from rota.mechanisms.learned.server_arrays import Chosen, ServerArrays
from rota.mechanisms.network.layout import needs_of
from rota.mechanisms.user_code import UserCode, as_count


class CheckedChooser:
    """Answers as the user's chooser does; refuses tasks on unknown nodes, and numbers of tasks that the job lacks."""

    def __init__(self, chooser: Chooser, user: UserCode) -> None:
        self._chooser = chooser
        self._user = user
        self._name = type(chooser).__name__
        user.require(chooser, "choose", "observe", base="DefaultChooser")
        kinds = user.attribute(chooser, "kinds")
        if not isinstance(kinds, tuple) or not all(isinstance(kind, str) for kind in kinds):
            user.refuse_attribute(f"{self._name}.kinds", kinds, "a tuple of names of models, () for none")
        self.kinds: tuple[str, ...] = kinds

    def choose(self, arrays: ServerArrays, live: LiveJob, now_s: float) -> Chosen | None:
        """The node of each task, if all tasks of the job have one; None if the chooser finds no room."""
        function = f"{self._name}.choose"
        free = arrays.free.copy()
        answer = self._user.call(function, self._chooser.choose, arrays, live, now_s)
        if not np.array_equal(free, arrays.free):
            self._user.refuse(function, answer, "that the free amounts are as before when it returns")
        if answer is None:
            return None
        if not isinstance(answer, Mapping):
            self._user.refuse(function, answer, "None, or a dict of numbers of tasks by (role, node)")
        chosen = self._tasks(function, answer, live, len(free))
        for number, role in enumerate(live.job.roles):
            placed = sum(tasks for (at, _), tasks in chosen.items() if at == number)
            if placed != role.count:
                self._user.refuse(function, answer, f"all {role.count} tasks of role {number}, not {placed}")
        used = np.zeros_like(free)
        for (number, node), tasks in chosen.items():
            role = live.job.roles[number]
            used[node] += tasks * np.array(needs_of(role), np.float64)
            if not arrays.fits(role)[node] or (used[node] > free[node]).any():
                self._user.refuse(
                    function, answer, f"nodes with room for the tasks (arrays.fits); node {node} has none"
                )
        return chosen

    def _tasks(self, function: str, answer: Mapping[Any, Any], live: LiveJob, nodes: int) -> Chosen:
        """The numbers of tasks by role and node, if there are such roles and nodes."""
        chosen: Chosen = {}
        for key, value in answer.items():
            role, node = map(as_count, key) if isinstance(key, tuple) and len(key) == 2 else (None, None)
            tasks = as_count(value)
            if role is None or node is None or tasks is None or tasks < 1:
                self._user.refuse(function, answer, "numbers of tasks, 1 or more, by (role, node)")
            if not 0 <= role < len(live.job.roles) or not 0 <= node < nodes:
                self._user.refuse(function, answer, f"roles below {len(live.job.roles)} and nodes below {nodes}")
            chosen[role, node] = tasks
        return chosen

    def observe(self, running: dict[int, LiveJob], now_s: float) -> None:
        """Pass on which jobs run."""
        self._user.call(f"{self._name}.observe", self._chooser.observe, running, now_s)
