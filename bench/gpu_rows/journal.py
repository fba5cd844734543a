"""What the GPU did, simulated: the journal of a manager that preempted real jobs, as a trace."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from simulated_against_live import simulated

from gpu_rows.lab import Lab
from gpu_rows.table import said
from rota.core.model.cluster import Cluster

JOBS = (
    (0.0, 8, 8, 0),
    (9.0, 3, 3, 5),
    (3.0, 6, 6, 0),
    (14.0, 12, 5, 1),
    (9.0, 2, 3, 9),
    (6.0, 5, 5, 0),
    (10.0, 4, 4, 5),
)
"""The pause before each, its GiB of GPU memory, the seconds for which it works, its priority."""


def journal(folder: Path) -> None:
    """Preempt jobs of several sizes by more urgent ones, then simulate the journal."""
    policy = "priority"
    lab = Lab(folder, policy=policy)
    try:
        jobs = []
        for number, (pause_s, gib, work_s, priority) in enumerate(JOBS):
            time.sleep(pause_s)
            jobs.append(lab.submit("fill.py", gib, work_s, folder / f"out{number}", priority=priority))
        ends = [lab.wait(job)["state"] for job in jobs]
    finally:
        lab.end()
    written = folder / "journal.jsonl"
    found = simulated(lab.manager.home / "rota.db", written, policy, Cluster.uniform(("gpu", 1, 1)))
    if out := os.environ.get("OUT"):
        shutil.copy(written, Path(out, "journal.jsonl"))
    errors, (live_s, simulated_s) = found.errors, found.means
    said(
        f"the same journal simulated: {len(JOBS)} jobs under `{policy}`, {found.stops} suspensions",
        f"mean completion {live_s:.1f} s on the GPU, {simulated_s:.1f} s simulated ({simulated_s / live_s - 1:+.1%}); "
        f"a job differs by {errors[len(errors) // 2]:.1%} in the median, {errors[-1]:.1%} at most",
        "within 5%",
        holds=abs(simulated_s / live_s - 1) <= 0.05 and errors[-1] <= 0.05 and set(ends) == {"succeeded"},
    )
