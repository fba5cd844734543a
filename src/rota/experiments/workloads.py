"""The workload of a setting: generated, or a window of a trace file, at a load. Every policy gets the same jobs."""

from __future__ import annotations

import hashlib
import math
import random
from functools import lru_cache
from pathlib import Path

from rota.core.errors import RotaError, did_you_mean
from rota.report.look import slug
from rota.traces.formats import read_trace
from rota.traces.generators import DEFAULT_LOAD, DESCRIPTIONS, generate
from rota.traces.readers.own_write import write_trace
from rota.traces.transform import scaled_to_load, window_of_jobs
from rota.traces.workload import Workload

DEFAULT_JOBS = 1000
_SHARES = ("elastic", "deadlines")


def is_generated(trace: str) -> bool:
    """Whether a trace is a kind of generated workload rather than a file."""
    return trace.partition(":")[0] in DESCRIPTIONS


def kept_as_file(workload: Workload, folder: Path) -> str:
    """A workload as a trace file of a folder, named by its source and content, so that a later call finds its runs."""
    stem = slug(Path(workload.source).name.partition(".")[0]) or "workload"
    waiting = folder / f".{stem}.parquet"
    folder.mkdir(parents=True, exist_ok=True)
    write_trace(workload, waiting)
    digest = hashlib.sha256(waiting.read_bytes()).hexdigest()[:8]
    return str(waiting.replace(folder / f"{stem}-{digest}.parquet"))


def refuse_unknown_trace(trace: str) -> None:
    """Refuse a trace that is neither a file nor a kind of workload."""
    if is_generated(trace):
        _shares(trace)
    elif not Path(trace).is_file():
        raise RotaError(f"trace {trace!r} is no file and no kind of workload; {did_you_mean(trace, DESCRIPTIONS)}")


def workload_of(
    trace: str,
    *,
    devices: int,
    load: float | None,
    seed: int,
    jobs: int | None,
    format: str | None = None,
    skip_bad_lines: bool = False,
) -> Workload:
    """The jobs of a trace for a cluster of so many devices.

    A generated workload has the load and the seed. Of a file, the seed chooses a window of `jobs` consecutive jobs, and
    times are stretched to the load; without `jobs` and load it is as it lies there.
    """
    if is_generated(trace):
        kind, _, _ = trace.partition(":")
        return generate(
            kind,
            jobs=jobs or DEFAULT_JOBS,
            seed=seed,
            gpus=devices,
            load=DEFAULT_LOAD if load is None else load,
            **_shares(trace),
        )
    whole = _read(trace, format, skip_bad_lines)
    if jobs is not None and jobs < len(whole.submissions):
        first = random.Random(f"window {seed}").randrange(len(whole.submissions) - jobs + 1)
        whole = window_of_jobs(whole, first, jobs)
    return whole if load is None else scaled_to_load(whole, load, devices)


@lru_cache(maxsize=2)
def _read(trace: str, format: str | None, skip_bad_lines: bool) -> Workload:
    return read_trace(Path(trace), format=format, skip_bad_lines=skip_bad_lines)


def _shares(trace: str) -> dict[str, float]:
    """The options of `NAME:elastic=F,deadlines=F`."""
    shares: dict[str, float] = {}
    for part in trace.partition(":")[2].split(","):
        if not part:
            continue
        name, _, text = part.partition("=")
        if name not in _SHARES:
            raise RotaError(f"trace {trace!r}: unknown option {name!r}; {did_you_mean(name, _SHARES)}")
        try:
            shares[name] = float(text)
        except ValueError:
            raise RotaError(f"trace {trace!r}: {name} is {text!r}; it must be a fraction, 0 to 1") from None
        if not 0 <= shares[name] <= 1 or math.isnan(shares[name]):
            raise RotaError(f"trace {trace!r}: {name} is {text}; it must be a fraction, 0 to 1")
    return shares


def jobs_in_file(trace: str, format: str | None, skip_bad_lines: bool) -> int | None:
    """How many jobs a trace file has, from which windows are chosen; None for a generated workload."""
    return None if is_generated(trace) else len(_read(trace, format, skip_bad_lines).submissions)


def forget_traces() -> None:
    """Read trace files again when they are next needed."""
    _read.cache_clear()
