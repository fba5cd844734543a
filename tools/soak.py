"""The soak: users, cancellations and kills at random for half an hour; every accepted job must end once, as it should.

`make soak` runs it for `SOAK_MINUTES` (30). In the first third the manager is killed again and again; afterwards it
lives to the end, so that its memory and descriptors can be followed. Tasks and supervisors are killed all the time.
Writes the figure `docs/images/soak.svg` and the table in `docs/explain/reliability.md`, and fails if a job was lost,
ran twice or ended otherwise than it should, or if memory or descriptors grow.
"""

from __future__ import annotations

import json
import os
import platform
import random
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from soak_figure import draw  # noqa: E402

from e2e.test_kill import check_journal, find  # noqa: E402
from managers import Manager, eventually  # noqa: E402
from rota.core.errors import RotaError, Unavailable  # noqa: E402
from rota.sdk.client import Client  # noqa: E402

USERS = 6
TENANTS = ("nlp", "robotics", "vision")
PAGE = ROOT / "docs/explain/reliability.md"
FIGURE = ROOT / "docs/images/soak.svg"
BEGIN, END = "<!-- soak: begin -->", "<!-- soak: end -->"
SAMPLE_S = 5.0
KILL_MANAGER_S = 15.0
KILL_TASK_S = 3.0
START_S = 180.0
"""How long a start of the manager may take on a machine that others use."""
MOST_GROWTH = 0.10
"""By how much memory may be larger in the last fifth of the manager's last life than in its second fifth."""
MOST_DESCRIPTORS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """A kind of job, how often it comes, and how it must end."""

    name: str
    weight: int
    run: str
    state: str
    fields: dict[str, Any] = field(default_factory=dict)
    cancels: bool = False


KINDS = (
    JobKind(name="succeeds", weight=10, run="sleep {seconds:.2f}", state="succeeded"),
    JobKind(name="fails", weight=2, run="sleep {seconds:.2f}; exit 3", state="failed"),
    JobKind(name="is cancelled", weight=3, run="sleep 600", state="cancelled", cancels=True),
    JobKind(
        name="ignores SIGTERM and is cancelled",
        weight=1,
        run="trap '' TERM; while :; do sleep 0.5; done",
        state="cancelled",
        fields={"checkpoint": {"grace": "1s"}},
        cancels=True,
    ),
    JobKind(name="exceeds its time", weight=1, run="sleep 600", state="failed", fields={"time_limit": "2s"}),
)


@dataclass(slots=True)
class Sample:
    """The manager at one moment."""

    at_s: float
    pid: int
    rss_mb: float
    descriptors: int
    threads: int
    unfinished: int


@dataclass(slots=True)
class Course:
    """What has happened so far."""

    begun_s: float
    until_s: float
    kinds: dict[str, JobKind] = field(default_factory=dict)
    """By id: every job that was accepted."""
    kills: Counter[str] = field(default_factory=Counter)
    kill_times_s: list[float] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    hit: set[str] = field(default_factory=set)
    troubles: list[str] = field(default_factory=list)
    refused: int = 0

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self.until_s

    @property
    def manager_lives(self) -> bool:
        """Whether the manager is not killed any more."""
        return time.monotonic() > self.begun_s + (self.until_s - self.begun_s) / 3

    def passed_s(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.begun_s


def be_user(manager: Manager, course: Course, number: int, token: str) -> None:
    """Submit jobs and cancel some of them, until the time is up."""
    rng = random.Random(number)
    due: list[tuple[float, str]] = []
    client: Client | None = None
    wanted: tuple[JobKind, dict[str, Any]] | None = None
    count = 0
    while not course.is_over or due or wanted is not None:
        time.sleep(rng.uniform(0.4, 1.6))
        client = client or connected(manager, token)
        if client is None:
            continue
        if wanted is None and not course.is_over:
            count += 1
            kind = rng.choices(KINDS, [each.weight for each in KINDS])[0]
            wanted = (kind, job_of(manager, kind, rng, f"user-{number}-{count}"))
        try:
            if wanted is not None:
                kind, job = wanted
                job_id = client.submit(job, key=str(job["name"]))[0]  # the key makes it safe to repeat
                course.kinds[job_id] = kind
                wanted = None
                if kind.cancels:
                    due.append((time.monotonic() + rng.uniform(0.0, 6.0), job_id))
            for entry in [each for each in due if each[0] < time.monotonic()]:
                cancel(client, entry[1])
                due.remove(entry)
        except (Unavailable, OSError):
            course.refused += 1
            client.close()
            client = None
    if client is not None:
        client.close()


def connected(manager: Manager, token: str) -> Client | None:
    """A client of the manager that runs now; None while none does."""
    try:
        return Client(find(manager), token, timeout_s=20.0)
    except (Unavailable, OSError):
        return None


def job_of(manager: Manager, kind: JobKind, rng: random.Random, name: str) -> dict[str, Any]:
    """A job of a kind that says when it starts."""
    line = 'echo "$ROTA_JOB_ID $ROTA_ATTEMPT $ROTA_RANK" >> ' + str(manager.folder / "started")
    return {
        "run": f"{line}; {kind.run.format(seconds=rng.uniform(0.05, 4.0))}",
        "name": name,
        "workers": rng.choice((1, 1, 1, 2, 3)),
        "resources": {"gpus": rng.choice((0.5, 1, 1))},
        **kind.fields,
    }


def cancel(client: Client, job_id: str) -> None:
    """Cancel a job; one that has ended already can't be."""
    try:
        client.act(job_id, "cancel")
    except RotaError as error:
        if "has ended" not in str(error):
            raise


def kill_tasks(manager: Manager, course: Course) -> None:
    """Kill tasks and supervisors at random, each job once at most."""
    rng = random.Random(1)
    while not course.is_over:
        time.sleep(rng.expovariate(1 / KILL_TASK_S))
        role = rng.choice(("pid", "supervisor", "recorder"))
        for job_id, state in running(manager, rng):
            if job_id in course.hit:
                continue
            course.hit.add(job_id)
            try:
                os.kill(int(state[role]), signal.SIGKILL)
            except (ProcessLookupError, KeyError):
                continue
            course.kills["task" if role == "pid" else role] += 1
            break


def running(manager: Manager, rng: random.Random) -> Iterator[tuple[str, dict[str, Any]]]:
    """The running tasks in random order: the job and what its supervisor wrote."""
    folders = [path for path in (manager.home / "runs").glob("*") if path.name.isdigit()]
    folders = sorted(folders, key=lambda path: int(path.name))[-80:]
    rng.shuffle(folders)
    for folder in folders:
        for path in folder.glob("*/*/state.json"):
            try:
                state = json.loads(path.read_text())
            except (OSError, ValueError):
                continue
            if state.get("phase") == "running" and Path(f"/proc/{state.get('pid')}").exists():
                yield folder.name, state


def watch(manager: Manager, course: Course) -> None:
    """Sample the manager until the time is up."""
    while not course.is_over:
        time.sleep(SAMPLE_S)
        process = manager.process
        if process is None or process.poll() is not None:
            continue
        try:
            course.samples.append(sample(process.pid, course))
        except (OSError, IndexError):  # it was killed just now
            continue


def sample(pid: int, course: Course) -> Sample:
    """What the kernel says of the manager."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return Sample(
        at_s=course.passed_s(),
        pid=pid,
        rss_mb=int(status["VmRSS"].split()[0]) / 1024,
        descriptors=len(os.listdir(f"/proc/{pid}/fd")),
        threads=int(status["Threads"]),
        unfinished=len(course.kinds),
    )


def kill_manager(manager: Manager, course: Course) -> None:
    """Kill and restart the manager in the first third; then let it live."""
    rng = random.Random(2)
    while not course.is_over:
        time.sleep(min(rng.expovariate(1 / KILL_MANAGER_S), 60.0) if not course.manager_lives else 1.0)
        if course.manager_lives:
            continue
        manager.kill()
        course.kills["manager"] += 1
        course.kill_times_s.append(course.passed_s())
        manager.start(START_S)


def check(manager: Manager, course: Course) -> list[str]:
    """What is wrong in the end, one line each."""
    wrong = list(course.troubles)
    jobs = {job["id"]: job for job in manager.client.jobs(all=True)}
    wrong += [f"job {job_id} was accepted and is gone" for job_id in course.kinds.keys() - jobs.keys()]
    wrong += [f"job {job_id} was never accepted" for job_id in jobs.keys() - course.kinds.keys()]
    for job_id, kind in course.kinds.items():
        job = jobs.get(job_id)
        if job is not None and job["state"] != kind.state:
            wrong.append(f"job {job_id} {kind.name}, but is {job['state']}: {job['message']}")
    lines = Counter((manager.folder / "started").read_text().splitlines())
    wrong += [f"task {line} was started {times} times" for line, times in lines.items() if times > 1]
    for job_id, kind in course.kinds.items():
        if kind.state == "succeeded" and job_id in jobs:
            whole = sum(
                [json.loads(path.read_text())["exit_code"] for path in attempt.glob("*/exit.json")]
                == [0] * jobs[job_id]["tasks"]
                for attempt in (manager.home / "runs" / job_id).iterdir()
            )
            if whole != 1:
                wrong.append(f"job {job_id} succeeded in {whole} attempts")
    check_journal(manager)
    return wrong


def flat(course: Course) -> tuple[list[str], dict[str, float]]:
    """What has grown in the manager's last life, and its figures."""
    last = [each for each in course.samples if each.pid == course.samples[-1].pid]
    fifth = max(len(last) // 5, 1)
    early, late = last[fifth : 2 * fifth] or last, last[-fifth:]
    rss = [statistics.median(each.rss_mb for each in part) for part in (early, late)]
    open_files = [statistics.median(each.descriptors for each in part) for part in (early, late)]
    hours = max((late[-1].at_s - early[0].at_s) / 3600, 1e-9)
    figures = {
        "early_mb": rss[0],
        "late_mb": rss[1],
        "mb_per_hour": (rss[1] - rss[0]) / hours,
        "early_fds": open_files[0],
        "late_fds": open_files[1],
        "most_fds": max(each.descriptors for each in last),
        "most_threads": max(each.threads for each in last),
        "minutes": (last[-1].at_s - last[0].at_s) / 60,
    }
    wrong = []
    if rss[1] > rss[0] * (1 + MOST_GROWTH):
        wrong.append(f"memory grew from {rss[0]:.1f} to {rss[1]:.1f} MiB")
    if open_files[1] > open_files[0] + MOST_DESCRIPTORS:
        wrong.append(f"descriptors grew from {open_files[0]:.0f} to {open_files[1]:.0f}")
    return wrong, figures


def table(course: Course, figures: dict[str, float], wrong: list[str], minutes: float) -> str:
    """The part of the page that tells of this run."""
    kinds = Counter(kind.name for kind in course.kinds.values())
    kills = ", ".join(f"{count} of {role}s" for role, count in sorted(course.kills.items()))
    rows = [
        ("length", f"{minutes:.0f} minutes, {os.cpu_count()} cores, Python {platform.python_version()}"),
        ("users", f"{USERS} in {len(TENANTS)} tenants"),
        ("accepted jobs", f"{len(course.kinds):,}: " + ", ".join(f"{n:,} {kind}" for kind, n in sorted(kinds.items()))),
        ("kills with SIGKILL", kills),
        ("lost, repeated or wrong ends", str(len(wrong))),
        (
            "memory of the manager",
            f"{figures['early_mb']:.1f} MiB early, {figures['late_mb']:.1f} MiB late in its last life "
            f"of {figures['minutes']:.0f} minutes",
        ),
        (
            "descriptors of the manager",
            f"{figures['early_fds']:.0f} early, {figures['late_fds']:.0f} late, {figures['most_fds']:.0f} at most",
        ),
        ("threads of the manager", f"{figures['most_threads']:.0f} at most"),
    ]
    lines = ["| | measured |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]
    image = "![Memory and descriptors of the manager during the soak](../images/soak.svg)"
    return "\n".join([BEGIN, "", *lines, "", image, "", END])


def main() -> int:
    """Run the soak; write its page and figure where it was long enough."""
    minutes = float(os.environ.get("SOAK_MINUTES", "30"))
    folder = Path(tempfile.mkdtemp(prefix="rota-soak-"))
    manager = Manager(folder, "--emulate", "gpu=16/4", checks=True).start(START_S)
    begun_s = time.monotonic()
    course = Course(begun_s=begun_s, until_s=begun_s + 60.0 * minutes)
    for tenant in TENANTS:
        manager.client.put_tenant(tenant, {})
    tokens = [
        manager.client.post("/tokens", {"name": f"user-{n}", "role": "member", "tenants": [TENANTS[n % len(TENANTS)]]})
        for n in range(USERS)
    ]

    def guarded(work: Any, *args: Any) -> None:
        try:
            work(manager, course, *args)
        except BaseException as error:
            course.troubles.append(f"{work.__name__}: {error!r}")

    works = [threading.Thread(target=guarded, args=(be_user, n, each["token"])) for n, each in enumerate(tokens)]
    works += [threading.Thread(target=guarded, args=(work,)) for work in (kill_tasks, watch, kill_manager)]
    try:
        for work in works:
            work.start()
        while any(work.is_alive() for work in works):
            time.sleep(min(10.0, 10.0 * minutes))
            print(f"{course.passed_s() / 60:5.1f} min  {len(course.kinds):,} jobs  {dict(course.kills)}", flush=True)
        eventually(lambda: not list(manager.client.jobs()), within_s=300, every_s=0.5)
        wrong = check(manager, course)
        eventually(lambda: manager.task_processes() == [], within_s=60)
        grown, figures = flat(course)
    finally:
        manager.clean_up()
    report(course, figures, wrong + grown, minutes)
    if wrong or grown:
        print("\n".join(["error: the soak found faults; the manager's folder is kept: " + str(folder), *wrong, *grown]))
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def report(course: Course, figures: dict[str, float], wrong: list[str], minutes: float) -> None:
    """Print the table, and write the page and the figure of a long run."""
    told = table(course, figures, wrong, minutes)
    print(told)
    points = [(each.at_s, each.rss_mb, each.descriptors) for each in course.samples]
    out = FIGURE if minutes >= 20 else ROOT / "out/soak.svg"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(draw(points, course.kill_times_s), encoding="utf-8")
    if minutes >= 20:
        page = PAGE.read_text(encoding="utf-8")
        above, _, rest = page.partition(BEGIN)
        PAGE.write_text(above + told + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
