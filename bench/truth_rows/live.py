"""One row: a live manager, its past, its measured jobs, and what came of its forecasts."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from managers import Manager
from rota.core.errors import RotaError, Unavailable
from rota.live.truth.scores import ScoredMoment
from rota.live.truth.summary import tables_of
from rota.store.database import open_database
from rota.store.records import Records
from truth_rows.workload import TASK, TimedJob, job_file, random_jobs

Json = dict[str, Any]
LONGEST_S = 1500.0
DEFAULT_ROWS = tuple(  # unprotected, so that jobs that start over are preempted as well
    (policy, source)
    for policy in (
        "fifo:backfill=true",
        "priority:protect=none,min_run_s=0",
        "las:thresholds=20/80,protect=none,min_run_s=0",
        "afs-p:evict_s=60,protect=none,min_run_s=0",
    )
    for source in ("declared", "history")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRow:
    """What a row runs."""

    policy: str
    source: str
    """`declared`, or `history`."""
    jobs: int
    past: int
    after: int = 0
    """Jobs that follow the measured ones: a cluster's stream of submissions does not end with what is measured."""
    scale: float
    seed: int


def measure_row(row: LiveRow, folder: Path, *, limit_s: float = LONGEST_S, keep: Path | None = None) -> Json:
    """Run the jobs of a row on a manager of its own, and return its figures; `keep` gets a copy of its database."""
    until_s = time.monotonic() + limit_s
    home = folder / f"{row.policy.partition(':')[0]}-{row.source}"
    home.mkdir()
    script = home / "task.sh"
    script.write_text(TASK, encoding="utf-8")
    manager = Manager(home, "--emulate", "gpu=8/4", "--policy", row.policy, "--log-level", "warning").start(
        within_s=120.0
    )
    elastic = row.policy.startswith("afs")
    count = row.past + row.jobs + row.after
    jobs = random_jobs(count, declared=row.source == "declared", scale=row.scale, seed=row.seed)
    try:
        measured = submit_all(manager, jobs, script, row, elastic=elastic)
        wait_for_all(manager, until_s=until_s)
        found = figures(manager, row, measured)
    finally:
        manager.clean_up()
        keep_database(manager, keep, home.name)
    return found


def keep_database(manager: Manager, folder: Path | None, name: str) -> None:
    """Copy the database of a manager that has ended to a folder, if there is one."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for part in manager.home.glob("rota.db*"):
            shutil.copy(part, folder / part.name.replace("rota", name))


def submit_all(manager: Manager, jobs: list[TimedJob], script: Path, row: LiveRow, *, elastic: bool) -> set[str]:
    """Submit jobs at their times; return the measured ones."""
    begun_s = time.time()
    measured: set[str] = set()
    for number, job in enumerate(jobs):
        time.sleep(max(begun_s + job.at_s - time.time(), 0.0))
        file = {**job_file(job, script, elastic=elastic), "workdir": str(manager.folder)}
        names = manager.client.submit(file)
        if row.past <= number < row.past + row.jobs:
            measured.update(names)
    return measured


def wait_for_all(manager: Manager, *, until_s: float) -> None:
    """Wait until no job is left, or for as long as may be: then there are figures of those that ended."""
    while left := list(manager.client.jobs()):
        if time.monotonic() > until_s:
            print(f"{len(left)} jobs were left when the time was over")
            break
        time.sleep(1.0)
    time.sleep(2.0)


def figures(manager: Manager, row: LiveRow, measured: Collection[str]) -> Json:
    """Return the figures of a row whose jobs are over."""
    failed = [job["id"] for job in manager.client.jobs(all=True, state="failed")]
    try:
        simulated = manager.client.get("/truth/simulated?days=1")
    except (RotaError, Unavailable) as error:
        simulated = {"error": None, "why": str(error), "real": None, "now": None}
    scores = scores_of(manager.home / "rota.db", measured)
    return {**asdict(row), **scores, **compared(simulated), "failed": len(failed), "commit": commit()}


def scores_of(database: Path, measured: Collection[str]) -> Json:
    """Return the scores of the forecasts at submission of the measured jobs."""
    records = Records(open_database(database))
    try:
        kept = [each for each in records.forecasts.since(0.0) if each.cause == "submission" and each.job_id in measured]
    finally:
        records.close()
    now_s = time.time()
    start = tables_of(kept, 1.0, ScoredMoment.START, now_s)
    end = tables_of(kept, 1.0, ScoredMoment.END, now_s)
    return {
        "forecasts": start.all.forecasts,
        "start": asdict(start.all),
        "end": asdict(end.all),
        "horizon": [asdict(each) for each in start.groups["horizon"]],
        "single": [singles(each) for each in kept],
    }


def singles(kept: Any) -> Json:
    """Return one forecast and its outcome, for a closer look."""
    start = None if kept.start is None else asdict(kept.start)
    end = None if kept.end is None else asdict(kept.end)
    return {
        "job": kept.job_id,
        "made_s": kept.made_s,
        "basis": kept.basis,
        "start": start,
        "end": end,
        "started_s": kept.started_s,
        "ended_s": kept.ended_s,
        "state": kept.state,
    }


def compared(answer: Json) -> Json:
    """Return the simulation against what happened."""
    if answer["error"] is None:
        return {"simulated": None, "why": answer.get("why")}
    real, now = answer["real"]["metrics"], answer["now"]["metrics"]
    return {
        "simulated": {
            "jobs": answer["error"]["jobs"],
            "real_mean_s": real["avg_jct_s"],
            "simulated_mean_s": now["avg_jct_s"],
            "mean_error": answer["error"]["metrics"]["avg_jct_s"],
            "per_job_median": answer["error"]["per_job_median"],
            "per_job_p90": answer["error"]["per_job_p90"],
            "by_chance": answer["error"]["by_chance"],
            "preemptions": [real["preemptions"], now["preemptions"]],
        }
    }


def commit() -> str:
    """Return the commit that was measured, marked if files differ from it."""
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, cwd=Path(__file__).parent
    )
    return found.stdout.strip()
