"""What the GPUs of this machine do over time: by device since the manager's start, by job as long as the job is kept.

A sample a second of every GPU. The series of a job lies in its folder and is written once a minute and at its end; a
manager that is killed loses at most the last minute of it. The energy of a job does not depend on that: supervisors
read the GPUs' counters themselves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rota.core.model.job import JobId
from rota.drivers.local.gpu.sensors import FIELDS, GpuAbout, GpuSample, Values
from rota.drivers.local.gpu.series import SampleSeries
from rota.drivers.local.gpu.user_report import GpuUseByUser
from rota.store.run_folder import attempt_folder, matching, read_json, write_json

SAVE_S = 60.0
SERIES_FILE = "gpu-series.json"
_NO_SERIES = (OSError, ValueError, KeyError, TypeError)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHolder:
    """A job that holds a GPU, or a part of it."""

    job_id: JobId
    user: str
    attempt: int
    milli: int
    alone: bool
    """Whether it holds the whole GPU."""
    in_turn: bool = False
    """Whether it has the GPU for a part of the time, else for all of it with others beside it."""


Holders = Mapping[int, Sequence[GpuHolder]]
"""The jobs on each GPU, by its index."""


@dataclass(slots=True)
class GpuRecord:
    """One GPU: what it is, its latest sample, its past, and its errors since the manager's start."""

    about: GpuAbout
    latest: GpuSample | None = None
    series: SampleSeries = field(default_factory=SampleSeries)
    xids: list[tuple[float, int]] = field(default_factory=list)
    is_lost: bool = False


@dataclass(slots=True)
class _JobSeries:
    """A job's GPUs by index; `shared` once another job was on one of them."""

    by_gpu: dict[int, SampleSeries] = field(default_factory=dict)
    shared: bool = False
    xids: list[tuple[float, int, int]] = field(default_factory=list)
    saved_s: float = 0.0

    def encode(self) -> dict[str, Any]:
        return {
            "fields": list(FIELDS),
            "shared": self.shared,
            "xids": [list(each) for each in self.xids],
            "gpus": {str(index): series.encode() for index, series in self.by_gpu.items()},
        }


class GpuTelemetry:
    """The records of all GPUs, and of the jobs that hold them."""

    def __init__(self, home: Path, gpus: Sequence[GpuAbout], idle_percent: float, every_s: float) -> None:
        self.gpus = [GpuRecord(about) for about in gpus]
        self.users = GpuUseByUser(home, idle_percent)
        self._home = home
        self._every_s = every_s
        self._jobs: dict[JobId, _JobSeries] = {}

    def take(self, samples: Sequence[GpuSample | None], holders: Holders, now_s: float) -> None:
        """Take in a sample of every GPU, with the jobs that hold them now."""
        for record, sample in zip(self.gpus, samples, strict=True):
            record.latest, record.is_lost = sample or record.latest, sample is None
            if sample is None:
                continue
            record.series.add(now_s, sample.values)
            index = record.about.index
            for holder in holders.get(index, ()):
                self._note(holder, index, sample.values, now_s)
        held = {holder.job_id for on_gpu in holders.values() for holder in on_gpu}
        for job_id in [job_id for job_id in self._jobs if job_id not in held]:
            self.save(job_id, now_s)
            del self._jobs[job_id]
        for job_id, series in self._jobs.items():
            if now_s - series.saved_s >= SAVE_S:
                self.save(job_id, now_s)
        self.users.save_sometimes(now_s)

    def note_xid(self, index: int, number: int, holders: Holders, now_s: float) -> list[JobId]:
        """Record a critical error of a GPU; return the jobs that were on it."""
        self.gpus[index].xids.append((now_s, number))
        found = [holder.job_id for holder in holders.get(index, ())]
        for job_id in found:
            self._series(job_id).xids.append((now_s, index, number))
        return found

    def xids_of(self, job_id: JobId) -> list[int]:
        """Return the critical errors that were seen while a running job held its GPUs."""
        found = self._jobs.get(job_id)
        return [] if found is None else [number for _, _, number in found.xids]

    def _note(self, holder: GpuHolder, index: int, values: Values, now_s: float) -> None:
        series = self._series(holder.job_id)
        series.shared = series.shared or not holder.alone
        shown = values if holder.alone else self._own_values(holder, values)
        series.by_gpu.setdefault(index, SampleSeries()).add(now_s, shown)
        busy = values[FIELDS.index("busy")] if holder.alone else None
        self.users.add(holder.user, self._every_s * holder.milli / 1000, busy, now_s)

    def _own_values(self, holder: GpuHolder, values: Values) -> Values:
        """Return what can be attributed to one of several jobs on a GPU: its own memory, as its supervisors see it."""
        known = [
            found.get("gpu_memory_now_bytes")
            for path in matching(attempt_folder(self._home, holder.job_id, holder.attempt), "*/gpus.json")
            if (found := read_json(path)) is not None
        ]
        own = max((float(each) for each in known if each is not None), default=None)
        return tuple(own if name == "memory_bytes" else None for name in FIELDS)

    def _series(self, job_id: JobId) -> _JobSeries:
        found = self._jobs.get(job_id)
        if found is None:
            found = self._jobs[job_id] = _read_series(self._home, job_id) or _JobSeries()
        return found

    def save(self, job_id: JobId, now_s: float) -> None:
        """Write a job's series to its folder; a full disk is tried again later."""
        series = self._jobs[job_id]
        series.saved_s = now_s
        try:
            write_json(self._home / "runs" / job_id / SERIES_FILE, series.encode())
        except OSError:
            return

    def close(self, now_s: float) -> None:
        """Write everything that is not written."""
        for job_id in self._jobs:
            self.save(job_id, now_s)
        self.users.save(now_s)

    def of_job(self, job_id: JobId) -> dict[str, Any] | None:
        """Return a job's series as JSON values, of now or from its folder; None if there is none."""
        live = self._jobs.get(job_id)
        return job_series(self._home, job_id) if live is None else _shown(live)

    def busy_of(self, job_id: JobId, since_s: float) -> float | None:
        """Return how busy the busiest GPU of a job was since a moment, in percent; None if that can't be told."""
        return max(self.busy_by_gpu(job_id, since_s).values(), default=None)

    def busy_by_gpu(self, job_id: JobId, since_s: float) -> dict[int, float]:
        """Return how busy each GPU of a job was since a moment, in percent; empty if that can't be told."""
        series = self._jobs.get(job_id)
        if series is None or series.shared:
            return {}
        means = {index: each.mean_since(since_s, "busy") for index, each in sorted(series.by_gpu.items())}
        return {index: mean for index, mean in means.items() if mean is not None}


def job_series(home: Path, job_id: JobId) -> dict[str, Any] | None:
    """Return the series in a job's folder as JSON values; None if there is none."""
    series = _read_series(home, job_id)
    return None if series is None else _shown(series)


def _shown(series: _JobSeries) -> dict[str, Any]:
    return {
        "fields": list(FIELDS),
        "shared": series.shared,
        "note": SHARED_NOTE if series.shared else "",
        "xids": [{"at_s": at_s, "gpu": gpu, "xid": number} for at_s, gpu, number in series.xids],
        "gpus": [
            {"gpu": index, "points": [[point.at_s, *point.values] for point in each.points()]}
            for index, each in sorted(series.by_gpu.items())
        ],
    }


SHARED_NOTE = (
    "other jobs shared its GPUs: utilisation, power, temperature, clocks, rates and energy are the device's "
    "and can't be attributed to one job; memory is its own"
)
"""What a job's figures lack that was not alone on its GPUs."""


def _read_series(home: Path, job_id: JobId) -> _JobSeries | None:
    try:
        found = json.loads((home / "runs" / job_id / SERIES_FILE).read_bytes())
        return _JobSeries(
            by_gpu={int(index): SampleSeries.decode(each) for index, each in found["gpus"].items()},
            shared=bool(found["shared"]),
            xids=[(float(at_s), int(gpu), int(number)) for at_s, gpu, number in found["xids"]],
        )
    except _NO_SERIES:
        return None
