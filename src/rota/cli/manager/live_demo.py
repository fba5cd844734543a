"""The workload of `rota demo`: jobs of three tenants that train, report, wait and yield, until it is stopped."""

from __future__ import annotations

import random
import signal
import sys
import time
import webbrowser
from typing import TYPE_CHECKING, Any

from rota.cli.terminal import echo
from rota.core.errors import Unavailable

if TYPE_CHECKING:
    from rota.sdk.client import Client

GPUS = "gpu=16/8"
TENANTS = ("vision", "speech", "robotics")
MOST_WAITING = 12
"""No job is submitted while so many wait: a queue to look at, not a flood."""
EVERY_S = 1.5
TOLD_EVERY_S = 15.0
LONGEST_END_S = 30.0

TRAINING = """
import math, random, sys, time
import rota.sdk
seconds, rate = float(sys.argv[1]), float(sys.argv[2])
run = rota.sdk.steps(range(int(seconds * 4)))
for _ in run:
    time.sleep(0.25)
    run.report(loss=2 * math.exp(-rate * run.step / 40) + 0.3 + random.uniform(-0.05, 0.05))
    if run.should_save:
        run.saved()
print("done after", run.step + 1, "steps", flush=True)
"""

NEXT = """
Try, in another terminal (rota finds this manager by --server):
  rota --server {url} ps                  the jobs, and why each waits
  rota --server {url} why JOB             the reason, the position, the expected start
  rota --server {url} top                 nodes and jobs, refreshed
  rota --server {url} submit --gpus 4 --tenant vision --name mine -- sleep 20
Ctrl-C ends the demo and removes everything but the journal and the report.
"""


def show(client: Client, lasts_s: float | None, *, browser: bool) -> None:
    """Open the dashboard and keep the cluster busy until the time is over or Ctrl-C is pressed."""
    echo(f"a manager of 16 emulated GPUs on 2 nodes for {', '.join(TENANTS)}: {client.url}")
    echo(NEXT.format(url=client.url), lines=True)
    if browser:
        webbrowser.open(client.url)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _keep_busy(client, random.Random(1), lasts_s)
    except KeyboardInterrupt:
        echo("\nstopping")
    _end_all(client)


def _end_all(client: Client) -> None:
    """Cancel what waits and runs, and wait until it has ended: tasks outlive their manager otherwise."""
    deadline = time.monotonic() + LONGEST_END_S
    while ids := [job["id"] for job in client.jobs()]:
        if time.monotonic() > deadline:
            raise Unavailable(f"{len(ids)} jobs did not end within {LONGEST_END_S:.0f} s")
        client.act_on_all("cancel", ids=ids, force=True)
        time.sleep(0.5)


def _keep_busy(client: Client, rng: random.Random, lasts_s: float | None) -> None:
    begun_s = told_s = time.monotonic()
    while lasts_s is None or time.monotonic() < begun_s + lasts_s:
        jobs = list(client.jobs())
        waiting = sum(job["state"] == "queued" for job in jobs)
        if waiting < MOST_WAITING:
            client.submit(next_job(rng))
        if time.monotonic() >= told_s:
            told_s += TOLD_EVERY_S
            echo(f"{time.monotonic() - begun_s:5.0f} s  {len(jobs) - waiting} running, {waiting} waiting")
        time.sleep(EVERY_S)


def next_job(rng: random.Random) -> dict[str, Any]:
    """One more job: mostly small and short, now and then a gang, an urgent one or a sweep's member."""
    kind = rng.choices(("train", "gang", "evaluate", "urgent"), (6, 2, 3, 1))[0]
    seconds = {"train": rng.uniform(15, 60), "gang": rng.uniform(20, 50), "evaluate": 6.0, "urgent": 10.0}[kind]
    gpus = {"train": rng.choice((1, 1, 2, 4)), "gang": 4, "evaluate": 1, "urgent": 4}[kind]
    file: dict[str, Any] = {
        "name": f"{kind}-{rng.randrange(100):02}",
        "tenant": rng.choice(TENANTS),
        "run": [sys.executable, "-c", TRAINING, f"{seconds:.0f}", f"{rng.uniform(0.5, 2):.2f}"],
        "estimate": f"{seconds:.0f}s",
        "workers": 2 if kind == "gang" else 1,
        "resources": {"gpus": gpus},
        "checkpoint": {"path": "saved.json", "grace": "5s"},
    }
    return {**file, "priority": 10} if kind == "urgent" else {**file, "preemptible": True}
