"""Collects the jobs and errors that a reader finds, and makes a workload of them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import TypeAlias

from rota.core.errors import RotaError
from rota.core.model.job import Job, JobId
from rota.traces.source import TraceSource
from rota.traces.workload import Outcome, Submission, Workload

Entry: TypeAlias = tuple[float, Job, Outcome, float]
"""Submit time, job, outcome and the fraction of the work at which it ends."""


class TraceBuilder:
    """Entries of one file in file order, each with its line."""

    def __init__(self, source: TraceSource) -> None:
        self.source = source
        self.entries: list[Entry] = []
        self.lines: list[int] = []
        self.skipped = 0
        self.left_out = 0

    def reject(self, line: int, reason: object) -> None:
        """Refuse a line: raise an error, or count it as skipped where the user asked for that."""
        if not self.source.skip_bad_lines:
            raise RotaError(f"{self.source.path}:{line}: {reason}")
        self.skipped += 1

    def workload(self, format: str, *, from_zero: bool = False, counts_steps: bool = False) -> Workload:
        """All entries sorted by time, once they are known to be consistent.

        `from_zero` counts time from the first submission; otherwise times stay as the file has them.
        """
        self._check_ids()
        if not self.entries:
            raise RotaError(f"{self.source.path}: {self._why_empty()}")
        self._check_dependencies()
        entries = sorted(self.entries, key=itemgetter(0))
        zero_s = entries[0][0] if from_zero else 0.0
        return Workload(
            submissions=tuple(
                [
                    Submission(job=job, submit_s=submit_s - zero_s, outcome=outcome, ends_at=ends_at)
                    for submit_s, job, outcome, ends_at in entries
                ]
            ),
            source=str(self.source.path),
            format=format,
            skipped=self.skipped,
            counts_steps=counts_steps,
            left_out=self.left_out,
        )

    def _why_empty(self) -> str:
        counts = [
            f"{count} {what}"
            for count, what in (
                (self.skipped, "bad lines skipped"),
                (self.left_out, "jobs without a whole run"),
            )
            if count
        ]
        return f"there are no jobs in it ({', '.join(counts)})" if counts else "there are no jobs in it"

    def _check_ids(self) -> None:
        """Two lines with one id are an error; the later one is the bad line."""
        if len({entry[1].id for entry in self.entries}) == len(self.entries):
            return
        line_of: dict[JobId, int] = {}
        kept: list[tuple[Entry, int]] = []
        for entry, line in zip(self.entries, self.lines, strict=True):
            first = line_of.setdefault(entry[1].id, line)
            if first == line:
                kept.append((entry, line))
            else:
                self.reject(line, f"the job id {entry[1].id!r} is already used on line {first}")
        self.entries = [entry for entry, _ in kept]
        self.lines = [line for _, line in kept]

    def _check_dependencies(self) -> None:
        dependants = [
            (entry[1], line) for entry, line in zip(self.entries, self.lines, strict=True) if entry[1].depends_on
        ]
        if not dependants:
            return
        known = {entry[1].id for entry in self.entries}
        for job, line in dependants:
            for needed in job.depends_on:
                if needed not in known:
                    raise RotaError(
                        f"{self.source.path}:{line}: job {job.id!r} depends on {needed!r}, which is not in the trace"
                    )
        check_acyclic([job for job, _ in dependants], str(self.source.path))


def check_acyclic(jobs: Sequence[Job], where: str) -> None:
    """Refuse jobs that depend on each other in a cycle."""
    from graphlib import CycleError, TopologicalSorter

    try:
        TopologicalSorter({job.id: job.depends_on for job in jobs}).prepare()
    except CycleError as err:
        ring = " -> ".join(repr(name) for name in reversed(err.args[1]))
        raise RotaError(f"{where}: jobs depend on each other in a ring: {ring}") from None
