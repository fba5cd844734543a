"""Experience from a journal: which jobs ran on the same servers, for how long, and how fast."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from rota.core.codec.values import decode_event, decode_job, decode_placement
from rota.core.errors import RotaError
from rota.core.messages import events as ev
from rota.core.model.job import Job, JobId
from rota.core.model.placement import Placement
from rota.learn.experience import Experience, SpeedSnapshot, by_side, kind_number, pack
from rota.perf.speed.shared_servers import kind_of

SHORTEST_S = 1.0
"""Shortest snapshot that is used."""
Speed = Callable[[JobId, float, float, float], float | None]
"""Speed of a job between two times, given its journalled rate; None if it is unknown."""


@dataclass(slots=True)
class JournalRun:
    """A job of the journal, its present placement and rate."""

    job: Job
    placement: Placement | None = None
    rate: float = 0.0


def as_journalled(job_id: JobId, from_s: float, to_s: float, rate: float) -> float | None:
    """Return the journalled rate, which is exact for a simulated job."""
    return rate if rate > 0 else None


def read_experience(path: Path, kinds: tuple[str, ...]) -> Experience:
    """Read the experience of a journal file, by its own rates."""
    try:
        with path.open(encoding="utf-8") as lines:
            found = experience_of(lines, kinds)
    except FileNotFoundError:
        raise RotaError(f"journal {path}: there is no such file") from None
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        raise RotaError(f"journal {path}: can't be read: {type(err).__name__}: {err}") from None
    if not found.samples:
        raise RotaError(f"journal {path}: no job ran long enough to observe its speed")
    return found


def experience_of(lines: Iterable[str], kinds: tuple[str, ...], speed: Speed = as_journalled) -> Experience:
    """Return the experience of a journal's steps; speeds are relative to the best of jobs of the same kind and size."""
    runs: dict[JobId, JournalRun] = {}
    nodes: dict[str, int] = {}
    moments: list[SpeedSnapshot] = []
    sizes: list[list[tuple[int, int, int]]] = []
    last_s = None
    for line in lines:
        value = json.loads(line)
        if "t" not in value:
            begin(runs, nodes, value)
            continue
        now_s = float(value["t"])
        if last_s is not None and now_s - last_s >= SHORTEST_S:
            moment, of_size = _moment(runs, kinds, speed, last_s, now_s)
            if any(moment.speed):
                moments.append(moment)
                sizes.append(of_size)
        take(runs, nodes, value)
        last_s = now_s
    _normalise(moments, sizes)
    return pack(moments, kinds, max(len(nodes), 1))


def begin(runs: dict[JobId, JournalRun], nodes: dict[str, int], header: dict[str, object]) -> None:
    """Begin a journal segment, which may contain running jobs."""
    snapshot = header.get("snapshot")
    for value in snapshot["jobs"] if isinstance(snapshot, dict) else ():
        run = runs[JobId(value["job"]["id"])] = JournalRun(decode_job(value["job"]))
        if value.get("placement"):
            run.placement, run.rate = _placement(value["placement"], nodes), float(value.get("rate", 0.0))


def _placement(value: list[list[object]], nodes: dict[str, int]) -> Placement:
    for slot in value:
        nodes.setdefault(str(slot[0]), len(nodes))
    return decode_placement(value, nodes)


def take(
    runs: dict[JobId, JournalRun], nodes: dict[str, int], value: dict[str, list[dict[str, object]]]
) -> list[JobId]:
    """Apply one step of the journal; return the jobs that it changes."""
    seen_jobs: dict[JobId, None] = {}
    for each in value["in"]:
        event = decode_event(each)
        if isinstance(event, ev.JobArrived):
            runs[event.job.id] = JournalRun(event.job)
            continue
        run = runs.get(getattr(event, "job_id", JobId("")))
        if run is None:
            continue
        seen_jobs[run.job.id] = None
        match event:
            case ev.Started() | ev.SpeedChanged() | ev.Resized() | ev.Moved() | ev.Resumed():
                run.rate = event.rate
            case ev.Stopped() | ev.Interrupted() | ev.JobEnded() | ev.StartFailed():
                run.placement, run.rate = None, 0.0
            case ev.Suspended():
                run.rate = 0.0
            case _:
                pass
    for order in value.get("out", ()):
        run = runs.get(JobId(str(order["job_id"])))
        placed = order.get("on")
        if run is not None and isinstance(placed, list):
            run.placement = _placement(placed, nodes)
    return list(seen_jobs)


def _moment(
    runs: dict[JobId, JournalRun], kinds: tuple[str, ...], speed: Speed, from_s: float, to_s: float
) -> tuple[SpeedSnapshot, list[tuple[int, int, int]]]:
    moment, sizes = SpeedSnapshot(), []
    for job_id, run in runs.items():
        if run.placement is None or run.rate <= 0:
            continue
        workers, servers = by_side(run.job, run.placement)
        moment.kind.append(kind_number(kind_of(run.job), kinds))
        moment.tasks.append((workers, servers))
        moment.speed.append(speed(job_id, from_s, to_s, run.rate) or 0.0)
        sizes.append((moment.kind[-1], sum(workers.values()), sum(servers.values())))
    return moment, sizes


def _normalise(moments: list[SpeedSnapshot], sizes: list[list[tuple[int, int, int]]]) -> None:
    best: dict[tuple[int, int, int], float] = {}
    for moment, of_size in zip(moments, sizes, strict=True):
        for size, speed in zip(of_size, moment.speed, strict=True):
            best[size] = max(best.get(size, 0.0), speed)
    for moment, of_size in zip(moments, sizes, strict=True):
        moment.speed = [speed / best[size] if speed else 0.0 for size, speed in zip(of_size, moment.speed, strict=True)]
