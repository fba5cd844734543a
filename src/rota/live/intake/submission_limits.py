"""The bounds of a submission, checked before anything is expanded, and pauses in work that may take long.

A short request may stand for much work: a job without gang becomes one job for each task, and every task gets its own
copy of the job's variables. The bounds are those of the result, computed from the request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Any

from rota.core.errors import RotaError
from rota.core.messages.events import Event, JobArrived, JobCancelled, JobReleased
from rota.files.job_shape import JobFile

MOST_AT_ONCE = 10_000
"""Jobs that can be submitted together."""
MOST_VALUES = 10_000
"""Values in one job file."""
MOST_KEYS = 1000
"""Fields of one mapping in a job file."""
MOST_BYTES = 1 << 20
"""The text of one job file."""
MOST_COPIED = 256 << 20
"""The text of the job files of all tasks of a submission together."""
MOST_NEEDED = 1000
"""Jobs that one can depend on."""
MOST_NEEDED_TOGETHER = 20_000
"""Dependencies of all jobs that are submitted together."""
LARGE = 50
"""Jobs from which on a submission is large: only one large submission is taken at a time."""
MOST_EVENTS = 100
"""How many events one step takes, which limits how long a long list of jobs blocks others."""
CAN_WAIT = (JobArrived, JobCancelled, JobReleased)
"""Events that can come later: to plan without them is never wrong. All others are facts."""
NEEDED_PER_EVENT = 20
"""How many dependencies take as long as one more event."""
PAUSE_S = 0.01
"""How long work goes on before other requests are served."""


def portions(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Divide events among steps of the engine, so that no step takes long; a dependency counts, too.

    Facts that follow each other come in one step: the engine would plan for devices that are known to be taken.
    """
    part: list[Event] = []
    weight = 0
    for event in events:
        if part and weight >= MOST_EVENTS and isinstance(event, CAN_WAIT):
            yield part
            part, weight = [], 0
        part.append(event)
        weight += 1 + len(event.job.depends_on) // NEEDED_PER_EVENT if isinstance(event, JobArrived) else 1
    if part:
        yield part


class Pauses:
    """Lets other requests be served while much is done for one."""

    def __init__(self) -> None:
        self._since_s = time.perf_counter()

    async def take(self) -> None:
        """Pause if enough was done since the last pause."""
        if time.perf_counter() - self._since_s > PAUSE_S:
            await asyncio.sleep(0)
            self._since_s = time.perf_counter()


class Allowance:
    """What one submission may still become."""

    def __init__(self, most_jobs: int = MOST_AT_ONCE) -> None:
        self._most_jobs = self._jobs = most_jobs
        self._bytes = MOST_COPIED
        self._needed = MOST_NEEDED_TOGETHER

    def refuse_more(self, files: int) -> None:
        """Raise a `RotaError` if so many job files are too many, before any of them is looked at."""
        if files > self._most_jobs:
            raise RotaError(
                f"{files} jobs are submitted at once; this manager takes at most {self._most_jobs} "
                "(limits.jobs_at_once); submit them in parts"
            )

    def take(self, file: JobFile, text: str, source: str) -> None:
        """Count the tasks and jobs of a file; raise a `RotaError` if they are too many, before they are made."""
        if len(text) > MOST_BYTES:
            raise RotaError(f"{source}: the job file has {len(text)} characters; at most {MOST_BYTES} are accepted")
        tasks = sum(role.count for role in file.roles.values()) or file.full_size
        self._jobs -= 1 if file.gang else tasks
        if self._jobs < 0:
            raise RotaError(
                f"{source}: more than {self._most_jobs} jobs are submitted at once"
                f"{'' if file.gang else ' (without gang every task is a job)'}; submit them in parts"
            )
        self._bytes -= tasks * len(text)
        if self._bytes < 0:
            raise RotaError(
                f"{source}: each of {tasks} tasks gets its own copy of {len(text)} characters, which makes more than "
                f"{MOST_COPIED >> 20} MiB together; put what is long into a file that the tasks read"
            )
        self._needed -= len(file.depends_on) * (1 if file.gang else tasks)
        if self._needed < 0:
            raise RotaError(f"{source}: depends_on: more than {MOST_NEEDED_TOGETHER} dependencies in one submission")


def refuse_large(values: Any, source: str) -> None:
    """Refuse a job file with too many values or fields, before it is validated."""
    level: list[Any] = [values]
    count = 0
    while level:
        for value in level:
            if isinstance(value, dict) and len(value) > MOST_KEYS:
                raise RotaError(f"{source}: a mapping has {len(value)} fields; at most {MOST_KEYS} are accepted")
        level = [
            inner
            for value in level
            if isinstance(value, dict | list | tuple)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        count += len(level)
        if count > MOST_VALUES:
            raise RotaError(f"{source}: the job file has more than {MOST_VALUES} values")
