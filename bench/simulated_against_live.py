"""How far a simulation is from what really happened: a live manager on emulated devices, and its journal simulated.

Jobs of random lengths, sizes and priorities, half of which save their progress and half of which start over, run under
a policy that preempts. The journal is read as a trace and simulated with the costs that it teaches.

    python bench/simulated_against_live.py --policy priority --jobs 30

Printed: mean completion live and simulated, the median of the jobs' relative differences, how often jobs were stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rota.core.model.cluster import Cluster
from rota.drivers.simulator.study import Setting, simulate
from rota.forecast.costs import CostLearner, LearnedCosts
from rota.live.workers.forecast_worker import past_run
from rota.live.workers.whatif import as_policy_can
from rota.scenario import Scenario, encode_scenario
from rota.sdk.client import Client
from rota.store.database import open_database
from rota.store.journal import JournalHeader, encode_header
from rota.store.records import Records
from rota.traces.formats import read_trace

SAVES = """
import pathlib, signal, sys, time
path, total = pathlib.Path(sys.argv[1]), float(sys.argv[2])
done = float(path.read_text()) if path.exists() else 0.0
began = time.monotonic()
def save(*_):
    path.write_text(str(done + time.monotonic() - began))
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
time.sleep(max(total - done, 0.0))
"""


def job_files(count: int, seed: int, folder: Path, usual_s: float) -> list[tuple[float, dict[str, Any]]]:
    """Random job files and the pause before each."""
    chance = random.Random(seed)
    script = folder / "saves.py"
    script.write_text(SAVES)
    found = []
    for number in range(count):
        length_s = usual_s * chance.uniform(0.4, 1.8)
        file: dict[str, Any] = {
            "name": f"job{number}",
            "priority": chance.choice((0, 0, 1, 2)),
            "resources": {"gpus": chance.choice((1, 2, 2, 4))},
            "estimate": f"{length_s:.3f}s",
        }
        if chance.random() < 0.5:
            saved = folder / f"saved-{number}"
            file["run"] = f"exec {sys.executable} -S {script} {saved} {length_s:.3f}"
            file["checkpoint"] = {"grace": "10s"}
        else:
            file["run"] = f"exec sleep {length_s:.3f}"
        found.append((chance.expovariate(1.0) * usual_s / 5.0, file))
    return found


def live(folder: Path, policy: str, files: list[tuple[float, dict[str, Any]]]) -> None:
    """Run the jobs on a live manager until all have ended."""
    env = {**os.environ, "XDG_DATA_HOME": str(folder / "data"), "XDG_STATE_HOME": str(folder / "state")}
    command = [sys.executable, "-c", "from rota.cli.main import run; run()", "up", "--port", "0"]
    log = folder / "up.log"
    with log.open("wb") as output:
        manager = subprocess.Popen(
            [*command, "--emulate", "gpu=8/8", "--policy", policy], env=env, stdout=output, stderr=output
        )
    try:
        while "machine at " not in log.read_text():
            time.sleep(0.1)
        client = Client(log.read_text().split("machine at ")[1].split(";")[0])
        for pause_s, file in files:
            time.sleep(pause_s)
            client.submit(file)
        while any(row["state"] not in ("succeeded", "failed", "cancelled") for row in client.jobs()):
            time.sleep(0.5)
    finally:
        manager.send_signal(signal.SIGTERM)
        manager.wait(30)


def main() -> None:
    """Run live, simulate, and print how far they are apart."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="priority")
    parser.add_argument("--jobs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=6.0, help="the usual length of a job")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rota-live-") as place:
        folder = Path(place)
        live(folder, options.policy, job_files(options.jobs, options.seed, folder, options.seconds))
        compare(folder, options.policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Times from submission to completion by job, live and simulated, and how often jobs were stopped."""

    live_s: dict[str, float]
    simulated_s: dict[str, float]
    stops: int
    simulated_stops: int
    costs: LearnedCosts

    @property
    def errors(self) -> list[float]:
        """The relative differences of the jobs, the smallest first."""
        return sorted(abs(each / self.live_s[name] - 1) for name, each in self.simulated_s.items())

    @property
    def means(self) -> tuple[float, float]:
        """The mean completion, live and simulated."""
        return statistics.mean(self.live_s[name] for name in self.simulated_s), statistics.mean(
            self.simulated_s.values()
        )


def simulated(database: Path, journal: Path, policy: str, cluster: Cluster) -> Comparison:
    """Simulate the journal of a manager with the costs that it teaches."""
    records = Records(open_database(database))
    learner = CostLearner()
    header = JournalHeader(scenario=Scenario(policies=(policy,), placement="any", cluster=cluster))
    with journal.open("w", encoding="utf-8") as file:
        file.write(json.dumps(encode_header(header)) + "\n")
        for body in records.steps():
            learner.take(json.loads(body))
            file.write(body + "\n")
    rows = records.ended_since(0.0, 10_000)
    records.close()
    learned = learner.learned([past_run(row) for row in rows])
    scenario = as_policy_can(replace(header.scenario, costs=learned.costs()))
    assert encode_scenario(scenario)
    history = simulate(read_trace(journal), policy, Setting(cluster=cluster, costs=scenario.costs)).history
    return Comparison(
        live_s={row.id: row.ended_s - row.submitted_s for row in rows},
        simulated_s={row.id: (row.end_s or 0.0) - row.submit_s for row in history.jobs},
        stops=sum(json.loads(row.live).get("preemptions", 0) for row in rows),
        simulated_stops=sum(row.preemptions for row in history.jobs),
        costs=learned,
    )


def compare(folder: Path, policy: str) -> None:
    """Simulate the journal of a manager, and print how far that is from what happened."""
    database = folder / "data" / "rota" / "rota.db"
    found = simulated(database, folder / "journal.jsonl", policy, Cluster.uniform(("gpu", 8, 8)))
    errors, (mean_live, mean_told) = found.errors, found.means
    print(f"costs: {found.costs}")
    print(
        f"{policy}: {len(errors)} jobs, {found.stops} stops live, {found.simulated_stops} simulated; "
        f"mean completion {mean_live:.2f} s live, {mean_told:.2f} s simulated ({mean_told / mean_live - 1:+.1%}); "
        f"median difference of a job {statistics.median(errors):.1%}, "
        f"90th percentile {errors[int(0.9 * len(errors))]:.1%}"
    )


if __name__ == "__main__":
    main()
