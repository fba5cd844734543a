"""What trials reported: from the file that the SDK writes, or from lines of their output."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rota.core.model.job import JobId
from rota.store.run_folder import attempt_folder, output_end, read_output, reports, reports_changed
from rota.sweeps.file import SweepFile
from rota.sweeps.log_pattern import LinePattern, compiled, found_in
from rota.sweeps.trial import Point

CHUNK = 1 << 16
MOST_CHUNKS = 64
"""Pieces of one trial's output that are read at once; the rest follows with the next look."""


class TrialOutput:
    """Reads the reports of the trials of one sweep; for one thread at a time."""

    def __init__(self, home: Path, file: SweepFile) -> None:
        self._home = home
        self._file = file
        self._pattern: LinePattern | None = None if file.objective.log is None else compiled(file.objective.log)
        self._offsets: dict[tuple[JobId, int], int] = {}
        self._points: dict[JobId, dict[int, float]] = {}

    def stamp(self, job_id: JobId, attempts: int) -> object:
        """Return what changes when a trial has reported something new."""
        if self._pattern is None:
            return reports_changed(self._home, job_id)
        return [output_end(self._folder(job_id, attempt)) for attempt in range(1, attempts + 1)]

    def _folder(self, job_id: JobId, attempt: int) -> Path:
        return attempt_folder(self._home, job_id, attempt) / "0"

    def read(self, job_id: JobId, attempts: int) -> Sequence[Point]:
        """Return all reports of a trial so far as losses, in order of their steps."""
        if self._pattern is None:
            found = reports(self._home, job_id, self._file.objective.metric)
        else:
            for attempt in range(1, attempts + 1):
                self._read_lines(job_id, attempt, self._pattern)
            found = sorted(self._points.get(job_id, {}).items())
        return [(step, loss) for step, value in found if (loss := self._file.loss_of(value)) is not None]

    def _read_lines(self, job_id: JobId, attempt: int, pattern: LinePattern) -> None:
        known = self._points.setdefault(job_id, {})
        key = (job_id, attempt)
        for _ in range(MOST_CHUNKS):
            begins, output = read_output(self._folder(job_id, attempt), self._offsets.get(key, 0), CHUNK)
            whole = output.rfind(b"\n") + 1
            if not whole:
                if len(output) == CHUNK:  # a line without end
                    self._offsets[key] = begins + len(output)
                    continue
                return
            self._offsets[key] = begins + whole
            lines = output[:whole].decode("utf-8", errors="replace").splitlines()
            for step, value in found_in(lines, pattern, max(known, default=0)):
                known.setdefault(step, value)
