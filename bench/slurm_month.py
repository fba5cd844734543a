"""A month under Slurm's own backfill, and its accounting replayed under Rota's mirror of it and other policies.

    .venv/bin/python bench/slurm_month.py --months 3 --speed 1000

The month is simulated, Slurm is not: slurmctld, slurmdbd, slurmd and the jobs run with a clock that libfaketime makes
faster (`apt-get install faketime`), so that a month takes 45 minutes at a speed of 1000. What Slurm itself does then
takes longer than it should: backfill breaks a search off after two seconds, which are 2 ms at that speed, and nodes
take minutes to be cleared. Slurm therefore has precedence over other programs and its state in memory; the replay takes
nodes as free when they were, and cycles so slow that a search was broken off are counted. A lower speed has fewer. The
months have different jobs and run side by side.

Random jobs of six kinds go to eight nodes of four GPUs; their time limits are one to four times too long, in half
hours. Slurm has its own parameters. `--reserve 1` keeps resources for the first waiting job only, as `easy` does;
`--window 20160` also for jobs that can't start within a day, as for longer limits the manual asks. The accounting is
replayed under the policy that `rota slurm policy` makes of Slurm's configuration, with Slurm's choice of nodes, and
then under others with their own. `--keep FOLDER` keeps the accounting, or replays what is there.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import csv
import json
import math
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from e2e.slurm.bed import Shape, SlurmBed
from managers import ROTA

Json = dict[str, Any]
HOUR_S = 3600.0
KINDS_H = {"debug": 1.0, "eval": 3.0, "prepare": 6.0, "tune": 12.0, "train": 24.0, "large": 48.0}
"""Median run times by kind of job, in hours."""
SIZES = (
    ("--gres=gpu:1", "--cpus-per-task=4"),
    ("--gres=gpu:2", "--cpus-per-task=8"),
    ("--gres=gpu:4", "--cpus-per-task=16"),
    ("--gres=gpu:4", "--cpus-per-task=16", "-N2", "--ntasks-per-node=1"),
)
GPUS_OF = (1, 2, 4, 8)
WEIGHTS = (50, 25, 15, 10)
SPREAD = 0.5
NODES, GPUS = 8, 4
BEGIN = "2026-01-05 00:00:00"
POLICIES = ("easy", "fifo:backfill=true", "fifo", "fair-share", "las", "srtf", "rota")
NEAR_S = 600.0
"""Starts that are no further apart count as equal: a message takes a second of true time at worst."""
SHAKE_S = 120.0
BROKEN_OFF_S = 2.0
"""After so long, backfill's search for the start of a job is broken off (`_will_run_test` of select/cons_tres)."""
MEMORY = "/dev/shm"
"""A file system in memory."""


class TimedJob(NamedTuple):
    """A job and its time of submission."""

    at_s: float
    options: tuple[str, ...]
    run_s: float


def workload(days: float, load: float, rng: random.Random) -> list[TimedJob]:
    """Jobs of some days, at a rate that uses this part of the GPUs."""
    mean_h = statistics.fmean(KINDS_H.values()) * math.exp(SPREAD**2 / 2)
    mean_gpus = sum(gpus * weight for gpus, weight in zip(GPUS_OF, WEIGHTS, strict=True)) / sum(WEIGHTS)
    gap_s = mean_h * HOUR_S * mean_gpus / (NODES * GPUS * load)
    found, at_s = [], 0.0
    while (at_s := at_s + rng.expovariate(1.0 / gap_s)) < days * 86400.0:
        kind = rng.choice(list(KINDS_H))
        run_s = KINDS_H[kind] * HOUR_S * math.exp(rng.gauss(0.0, SPREAD))
        limit = 30 * max(math.ceil(run_s * rng.uniform(1.0, 4.0) / 1800.0), 1)
        options = (*rng.choices(SIZES, WEIGHTS)[0], f"--time={limit}", f"--job-name={kind}")
        found.append(TimedJob(at_s, options, run_s))
    return found


@contextmanager
def fast_clock(speed: float) -> Iterator[dict[str, str]]:
    """The environment of programs that share a clock of this speed."""
    command = ["faketime", "-f", f"@{BEGIN} x{speed:g}", "sh", "-c", "env -0; echo; exec cat"]
    env = {**os.environ, "TZ": "UTC", "FAKETIME_DONT_RESET": "1"}
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as keeper:
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        pairs = [each.partition("=") for each in keeper.stdout.readline().split("\0")]
        try:
            yield {
                name: value for name, _, value in pairs if name.startswith("FAKETIME") or name in ("LD_PRELOAD", "TZ")
            }
        finally:
            keeper.stdin.close()


@contextmanager
def precedence() -> Iterator[None]:
    """Programs that this thread starts go before those of others, where that is permitted."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10))
    except PermissionError:
        print("without precedence: other programs delay Slurm, by hours of the fast clock", flush=True)
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def shape_of(reserve: int, window_min: int, memory: Path) -> Shape:
    """The cluster, where programs have as much true time for messages and for their work as Slurm gives them.

    Slurm's state is in the folder `memory`: a disk that takes a second to write takes 17 minutes of the fast clock.
    """
    scheduler = (
        "nohold_on_prolog_fail,max_sched_time=600,build_queue_timeout=600000000,bf_max_time=3600,"
        "bf_yield_interval=10000000"
    )
    first = f",bf_job_part_count_reserve={reserve}" if reserve else ""
    window = f",bf_window={window_min}" if window_min else ""
    settings = {"SchedulerParameters": scheduler + first + window, "MinJobAge": "3600", "DebugFlags": "Backfill"}
    for name in ("SlurmctldTimeout", "SlurmdTimeout", "BatchStartTimeout", "UnkillableStepTimeout"):
        settings[name] = "60000"
    for name in ("MessageTimeout", "TCPTimeout"):
        settings[name] = "30000"
    settings |= {"StateSaveLocation": f"{memory}/state", "SlurmdSpoolDir": f"{memory}/spool-%n"}
    for name in ("state", *(f"spool-n{number + 1}" for number in range(NODES))):
        (memory / name).mkdir(mode=0o700)
    return Shape(nodes=NODES, gpus=GPUS, held=False, settings=settings, auth="none")


def run_month(seed: int, given: argparse.Namespace, folder: Path) -> Path:
    """Run a month under Slurm; return the folder with its accounting and cluster."""
    place = folder / f"month-{seed}"
    place.mkdir(parents=True, exist_ok=True)
    jobs = workload(given.days, given.load, random.Random(seed))
    with precedence(), tempfile.TemporaryDirectory(dir=MEMORY) as memory, fast_clock(given.speed) as clock:
        shape = shape_of(given.reserve, given.window, Path(memory))
        bed = SlurmBed(shape, accounting=True, clock=clock).start()
        try:
            _submit_all(bed, jobs, given.speed, seed)
            while bed.do("squeue", "-h", within_s=120.0):
                _check_nodes(bed)
                time.sleep(2.0)
            time.sleep(2.0)  # slurmdbd writes behind
            conf = ("--slurm-conf", bed.env["SLURM_CONF"])
            true_time = {name: value for name, value in bed.env.items() if name not in clock}
            rota(true_time, "slurm", "accounting", str(place / "month.txt"), "--since", "2026-01-01", *conf)
            (place / "cluster.yaml").write_text(rota(true_time, "slurm", "cluster", *conf))
            (place / "config.txt").write_text(bed.do("scontrol", "show", "config") + "\n")
            (place / "sdiag.txt").write_text(bed.do("sdiag") + "\n")
            shutil.copy(bed.folder / "slurmctld.log", place)
        finally:
            bed.stop()
    return place


def _submit_all(bed: SlurmBed, jobs: list[TimedJob], speed: float, seed: int) -> None:
    begun, late_s = time.time(), 0.0
    for number, job in enumerate(jobs):
        due_s = job.at_s / speed - (time.time() - begun)
        late_s = max(late_s, -due_s)
        time.sleep(max(due_s, 0.0))
        bed.submit(f"sleep {job.run_s:.0f}", *job.options)
        if number % 50 == 0:
            _check_nodes(bed)
        if number % 200 == 0:
            print(f"month {seed}: {number} of {len(jobs)} jobs submitted, {late_s:.2f} s late at most", flush=True)


def _check_nodes(bed: SlurmBed) -> None:
    away = bed.do("sinfo", "-h", "-t", "down,drain,fail", "-o", "%N %E", within_s=120.0)
    if away:
        raise SystemExit(f"nodes are away, so that this is no measurement: {away}")


def rota(env: dict[str, str], *words: str) -> str:
    """Run a command of Rota."""
    made = subprocess.run([*ROTA, *words], env=env, capture_output=True, text=True, timeout=600)
    assert made.returncode == 0, made.stderr
    return made.stdout


class Month(NamedTuple):
    """How long each job waited, by id, and the mirror of Slurm's scheduler."""

    waits_s: dict[str, float]
    policy: str
    placement: str


def read_month(place: Path) -> Month:
    """Read the waits in Slurm from its accounting, and its scheduler from its configuration."""
    lines = [line.split("|") for line in (place / "month.txt").read_text().splitlines()]
    name, submit, start = (lines[0].index(column) for column in ("JobID", "Submit", "Start"))
    waits_s = {
        cells[name]: (_moment(cells[start]) - _moment(cells[submit])).total_seconds()
        for cells in lines[1:]
        if cells[start] not in ("Unknown", "None")
    }
    found = json.loads(rota(dict(os.environ), "slurm", "policy", "--from", str(place / "config.txt"), "--json"))
    return Month(waits_s, found["policy"], found["placement"])


def fill_in_starts(place: Path) -> None:
    """Take starts that slurmdbd lost, which happens on a fast clock, from the log of slurmctld."""
    lines = [line.split("|") for line in (place / "month.txt").read_text().splitlines()]
    name, start, end, ran = (lines[0].index(column) for column in ("JobID", "Start", "End", "ElapsedRaw"))
    lost = {cells[name]: cells for cells in lines[1:] if cells[start] == "None"}
    if not lost:
        return
    for line in (place / "slurmctld.log").read_text(errors="replace").splitlines():
        said = re.match(r"\[([-:T0-9]+)\.\d+\] sched.*(?:Allocate|Started) JobId=(\d+) ", line)
        if said is not None and (cells := lost.pop(said[2], None)) is not None:
            cells[start] = said[1]
            cells[ran] = f"{(_moment(cells[end]) - _moment(said[1])).total_seconds():.0f}"
            print(f"{place.name}: the start of job {said[2]} is from the log; the accounting lost it")
    (place / "month.txt").write_text("\n".join("|".join(cells) for cells in lines) + "\n")


def write_replayed(place: Path) -> None:
    """Write the accounting as it is replayed: a job runs until its nodes are free, and not until its own end.

    A real Slurm takes a second to clear them, and one on a fast clock minutes.
    """
    lines = [line.split("|") for line in (place / "month.txt").read_text().splitlines()]
    name, start, end, ran = (lines[0].index(column) for column in ("JobID", "Start", "End", "ElapsedRaw"))
    free: dict[str, str] = {}
    for line in (place / "slurmctld.log").read_text(errors="replace").splitlines():
        said = re.match(r"\[([-:T0-9]+)\.\d+\] _job_complete: JobId=(\d+) done", line) or re.match(
            r"\[([-:T0-9]+)\.\d+\] cleanup_completing: JobId=(\d+) completion process took", line
        )
        if said is not None:
            free[said[2]] = said[1]
    for cells in lines[1:]:
        cells[end] = max(cells[end], free.get(cells[name], ""))
        cells[ran] = f"{(_moment(cells[end]) - _moment(cells[start])).total_seconds():.0f}"
    (place / "replayed.txt").write_text("\n".join("|".join(cells) for cells in lines) + "\n")


def disturbed(place: Path) -> list[str]:
    """When backfill took so long for its jobs that the search for the start of one was broken off, at least."""
    found = []
    for line in (place / "slurmctld.log").read_text(errors="replace").splitlines():
        said = re.match(r"\[([-:T0-9]+)\.\d+\] sched/backfill: .*testing \d+\((\d+)\) jobs, .*usec=(\d+)", line)
        if said is not None and int(said[3]) > max(int(said[2]), 1) * BROKEN_OFF_S * 1e6:
            found.append(said[1])
    return found


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def replayed_s(trace: Path, cluster: Path, *options: str) -> dict[str, float]:
    """How long each job of a trace waits in a simulation, by id."""
    with tempfile.TemporaryDirectory() as out:
        rota(dict(os.environ), "sim", "--trace", str(trace), "--cluster", str(cluster), *options, "--out", out)
        with (Path(out) / "jobs.csv").open() as file:
            return {row["id"]: float(row["wait_s"]) for row in csv.DictReader(file)}


def report(places: list[Path], policies: list[str], shakes: int) -> None:
    """Print the waits in Slurm and under policies: means, medians and ninth deciles, and how the means compare."""
    for place in places:
        fill_in_starts(place)
        write_replayed(place)
    months = [read_month(place) for place in places]
    print(f"\n{len(places)} months, {[len(month.waits_s) for month in months]} jobs")
    print(
        "| replayed under | mean wait (h) | median (h) | 90% (h) | mean against Slurm, by month | in the mean (95%) |"
    )
    print("|---|---|---|---|---|---|")
    _row("Slurm itself", [list(month.waits_s.values()) for month in months], None)
    mirrors = [
        replayed_s(
            place / "replayed.txt", place / "cluster.yaml", "--policy", month.policy, "--placement", month.placement
        )
        for place, month in zip(places, months, strict=True)
    ]
    _row("its own scheduler", [list(waits_s.values()) for waits_s in mirrors], months)
    for name in policies:
        found = [replayed_s(place / "replayed.txt", place / "cluster.yaml", "--policy", name) for place in places]
        _row(f"`{name}`", [list(waits_s.values()) for waits_s in found], months)
    for place, month, waits_s in zip(places, months, mirrors, strict=True):
        _compare_jobs(place, month, waits_s)
        if shakes:
            _shake(place, month, shakes)


def _row(name: str, waits_s: list[list[float]], months: list[Month] | None) -> None:
    means_s = [statistics.fmean(each) for each in waits_s]
    shown = [
        statistics.fmean(means_s),
        statistics.fmean(statistics.median(each) for each in waits_s),
        statistics.fmean(statistics.quantiles(each, n=10)[-1] for each in waits_s),
    ]
    cells = [f"{value / HOUR_S:.2f}" for value in shown]
    if months is None:
        cells += [", ".join(f"{value / HOUR_S:.2f} h" for value in means_s), ""]
    else:
        against = [
            found_s / statistics.fmean(month.waits_s.values()) - 1.0
            for found_s, month in zip(means_s, months, strict=True)
        ]
        cells += [", ".join(f"{value:+.1%}" for value in against), interval(against)]
    print(f"| {name} | {' | '.join(cells)} |")


def _compare_jobs(place: Path, month: Month, waits_s: dict[str, float]) -> None:
    """Compare a replay with Slurm job by job; jobs keep their time of submission, so that waits tell starts."""
    apart_s = [abs(waits_s[name] - really_s) for name, really_s in month.waits_s.items()]
    near = sum(each <= NEAR_S for each in apart_s) / len(apart_s)
    far = next((at for at, each in enumerate(apart_s) if each > NEAR_S), len(apart_s))
    print(
        f"{place.name}: {month.policy}\n  {near:.0%} of the starts are within {NEAR_S / 60:.0f} minutes of Slurm's, "
        f"the first {far} all; median difference {statistics.median(apart_s) / 60:.1f} minutes"
    )
    if late := disturbed(place):
        print(f"  {len(late)} cycles of backfill were so slow that a search was broken off, the first {late[0]}")


def _shake(place: Path, month: Month, shakes: int) -> None:
    """Print how far the mean wait of the replay moves if each submission is moved by up to two minutes."""
    lines = [line.split("|") for line in (place / "replayed.txt").read_text().splitlines()]
    submit = lines[0].index("Submit")
    rng, means_h = random.Random(1), []
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "month.txt"
        for _ in range(shakes):
            moved = [
                [*cells[:submit], _later(cells[submit], rng.uniform(0.0, SHAKE_S)), *cells[submit + 1 :]]
                for cells in lines[1:]
            ]
            trace.write_text("\n".join("|".join(cells) for cells in [lines[0], *moved]) + "\n")
            options = ("--policy", month.policy, "--placement", month.placement)
            means_h.append(statistics.fmean(replayed_s(trace, place / "cluster.yaml", *options).values()) / HOUR_S)
    print(
        f"  {shakes} replays with each submission up to {SHAKE_S:.0f} s later: {statistics.fmean(means_h):.2f} h in "
        f"the mean, standard deviation {statistics.stdev(means_h):.2f} h, {min(means_h):.2f} to {max(means_h):.2f} h"
    )


def _later(text: str, seconds: float) -> str:
    return (_moment(text) + timedelta(seconds=round(seconds))).isoformat()


def interval(values: list[float]) -> str:
    """The mean, with the interval of Student's distribution where there are several values."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return f"{mean:+.1%}"
    quantile = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36}.get(len(values), 2.26)
    return f"{mean:+.1%} ± {quantile * statistics.stdev(values) / math.sqrt(len(values)):.1%}"


def main() -> None:
    """Run all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--months", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--days", type=float, default=30.0)
    parser.add_argument("--load", type=float, default=0.9, help="the part of the GPUs that the jobs use")
    parser.add_argument("--speed", type=float, default=1000.0, help="how much faster the clock is")
    parser.add_argument("--reserve", type=int, default=0, help="waiting jobs that keep resources; 0: all, as in Slurm")
    parser.add_argument("--window", type=int, default=0, help="bf_window in minutes; 0: a day, as in Slurm")
    parser.add_argument("--shake", type=int, default=0, help="how often to replay with other times of submission")
    parser.add_argument("--keep", type=Path, help="a folder for the accounting; what is there already is replayed only")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = given.keep or Path(name)
        places = sorted(folder.glob("month-*/month.txt")) if given.keep else []
        if places:
            report([place.parent for place in places], list(POLICIES), given.shake)
            return
        seeds = range(given.first_seed, given.first_seed + given.months)
        with concurrent.futures.ThreadPoolExecutor(given.months) as pool:
            runs = list(pool.map(lambda seed: run_month(seed, given, folder), seeds))
        report(runs, list(POLICIES), given.shake)


if __name__ == "__main__":
    main()
