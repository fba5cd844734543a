"""Which jobs of an array may contend or run: at most as many at once as its limit says."""

from __future__ import annotations

from collections.abc import Mapping

from rota.core.model.job import JobId, JobState
from rota.core.state.job_record import LiveJob


class ArrayTurns:
    """The turns of jobs in arrays with a limit; a job without such an array needs none.

    A job takes a turn when nothing else keeps it from running, and keeps it, through preemptions and pauses, until it
    ends or is held. Then the job of the highest priority that waits for a turn gets it; of equal ones the earliest.
    """

    __slots__ = ("_queues", "_taken")

    def __init__(self) -> None:
        self._taken: dict[JobId, int] = {}
        self._queues: dict[JobId, dict[JobId, LiveJob]] = {}

    def take(self, live: LiveJob) -> None:
        """Give a job that needs a turn one, or let it wait for one, which is an obstacle that it counts."""
        array, limit = live.job.array, live.job.array_limit
        if array is None or limit is None or live.has_turn:
            return
        if self._taken.get(array, 0) < limit:
            self._grant(array, live)
        else:
            self._queues.setdefault(array, {})[live.job.id] = live
            live.unmet += 1

    def give_up(self, live: LiveJob) -> LiveJob | None:
        """Let a job neither have a turn nor wait for one; return the job that has got the turn, if one has.

        That job counts the obstacle until it contends.
        """
        array = live.job.array
        if array is None:
            return None
        if not live.has_turn:
            if self.is_waiting(live):
                self._leave(array, live)
                live.unmet -= 1
            return None
        live.has_turn = False
        self._taken[array] -= 1
        if not self._taken[array]:
            del self._taken[array]
        return self._pass_on(array)

    def restore(self, lives: Mapping[JobId, LiveJob]) -> None:
        """Count the turns that jobs of a record have, and give those that are left to jobs that only wait for one."""
        limited = [live for live in lives.values() if live.job.array is not None]
        for live in limited:
            if live.has_turn and live.job.array is not None:
                self._grant(live.job.array, live)
        for live in sorted(limited, key=_place):
            if live.state is JobState.WAITING and not live.unmet:
                self.take(live)

    def is_waiting(self, live: LiveJob) -> bool:
        """Whether a job waits for a turn."""
        return live.job.array is not None and live.job.id in self._queues.get(live.job.array, ())

    def taken(self, array: JobId) -> int:
        """How many jobs of an array have a turn."""
        return self._taken.get(array, 0)

    def fork(self, twin: Mapping[JobId, LiveJob]) -> ArrayTurns:
        """An independent copy with other records of the same jobs."""
        copy = ArrayTurns()
        copy._taken = dict(self._taken)
        copy._queues = {array: {name: twin[name] for name in queue} for array, queue in self._queues.items()}
        return copy

    def _grant(self, array: JobId, live: LiveJob) -> None:
        live.has_turn = True
        self._taken[array] = self._taken.get(array, 0) + 1

    def _leave(self, array: JobId, live: LiveJob) -> None:
        queue = self._queues[array]
        del queue[live.job.id]
        if not queue:
            del self._queues[array]

    def _pass_on(self, array: JobId) -> LiveJob | None:
        queue = self._queues.get(array)
        if not queue:
            return None
        following = min(queue.values(), key=_place)
        limit = following.job.array_limit
        if limit is not None and self._taken.get(array, 0) >= limit:
            return None
        self._leave(array, following)
        self._grant(array, following)
        return following


def _place(live: LiveJob) -> tuple[int, int]:
    return -live.job.priority, live.seq
