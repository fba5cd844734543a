"""The sharing policies through `rota sim`: parts of devices in Alibaba's format, and jobs with measured pairs."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builders import cluster, node
from rota.core.engine.engine import Engine
from rota.core.model.job import OPPORTUNISTIC, DeviceType
from rota.core.state.state import State
from rota.drivers.simulator.run import run
from rota.drivers.simulator.study import Setting, scheduler
from rota.drivers.simulator.world import World
from rota.perf.profiles.profile_files import read_profiles
from rota.perf.speed.model import Costs, SpeedModel
from rota.traces.formats import read_trace
from watches import Bound

DATA = os.environ.get("ROTA_DATA", "")
SHARING = ("gandiva", "antman", "kubeshare", "salus", "olympian", "lucid", "muri", "horus")
HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
needs_data = pytest.mark.skipif(not DATA, reason="ROTA_DATA is not set; it names the folder of traces and speeds")
V100 = DeviceType("v100")


def pods(path: Path, count: int = 60) -> Path:
    """A pod list with parts of devices, whole ones and several."""
    rng = random.Random(3)
    lines = [HEAD]
    for number in range(count):
        gpus, milli = rng.choice([(1, 250), (1, 500), (1, 700), (1, 1000), (2, 1000), (4, 1000)])
        at_s, run_s = number * 30, rng.randrange(60, 1200)
        qos = rng.choice(["LS", "BE", "Burstable"])
        lines.append(f"p{number},2000,1024,{gpus},{milli},,{qos},Succeeded,{at_s},{at_s + run_s},{at_s}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def rota_sim(*args: str) -> list[dict[str, Any]]:
    """What the command says in JSON."""
    command = [sys.executable, "-c", "from rota.cli.main import run; run()", "sim", *args, "-o", "json"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert told.returncode == 0, told.stderr
    found: list[dict[str, Any]] = json.loads(told.stdout)
    return found


@pytest.mark.slow
def test_all_of_them_run_pods_that_ask_for_parts(tmp_path: Path) -> None:
    policies = [*SHARING, *(f"{name}:consolidate_s=60" for name in SHARING)]
    asked = [option for policy in policies for option in ("--policy", policy)]

    rows = rota_sim("--trace", str(pods(tmp_path / "pods.csv")), "--cluster", "gpu=8/4", "--move-cost", "5", *asked)

    assert [(row["policy"], row["succeeded"]) for row in rows] == [(policy, 60) for policy in policies]


@pytest.mark.slow
def test_best_effort_pods_yield_and_are_packed_where_devices_are_taken_to_be_idle(tmp_path: Path) -> None:
    policies = ("fifo:backfill=true", "antman", "antman:unknown=0.5", "horus", "horus:unknown=0.5")
    asked = [option for policy in policies for option in ("--policy", policy)]

    fifo, antman, idle, horus, packed = rota_sim(
        "--trace", str(pods(tmp_path / "pods.csv")), "--cluster", "gpu=4/4", *asked
    )

    assert fifo["preemptions"] == horus["preemptions"] == 0
    assert antman["preemptions"] > 0
    assert idle["avg_jct_s"] < antman["avg_jct_s"]
    assert packed["avg_jct_s"] < horus["avg_jct_s"]


@needs_data
@pytest.mark.slow
def test_all_of_them_run_jobs_with_measured_pairs() -> None:
    folder = Path(DATA) / "gavel"
    asked = [option for policy in SHARING for option in ("--policy", policy)]

    rows = rota_sim(
        *(
            "--trace",
            str(folder / "gen_single_120.trace"),
            "--format",
            "gavel",
            "--jobs",
            "60",
            "--cluster",
            "v100=6/2",
        ),
        *("--profiles", str(folder / "simulation_throughputs.json"), "--resume-cost", "0.5", *asked),
    )

    assert [(row["policy"], row["finished"]) for row in rows] == [(policy, 60) for policy in SHARING]


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize("guard", [0.95, 0.8])
def test_guaranteed_job_is_never_slower_than_its_bound(guard: float) -> None:
    folder = Path(DATA) / "gavel"
    speed = SpeedModel(profiles=read_profiles(folder / "simulation_throughputs.json"))
    asked = read_trace(folder / "gen_single_120.trace", format="gavel").submissions[:60]
    mixed = [
        replace(each, job=replace(each.job, priority=OPPORTUNISTIC)) if number % 2 else each
        for number, each in enumerate(asked)
    ]
    setting = Setting(cluster=cluster(node("n1", 6, device_type=V100)), speed=speed)
    policy, alloc, _ = scheduler(f"antman:guard={guard}", setting)
    watch = Bound(speed, against_each_other=False)
    watch.engine = Engine(State(setting.cluster), policy, alloc, journal=watch)

    run(watch.engine, World(setting.cluster, speed, Costs()), mixed)

    assert guard - 1e-9 <= watch.least < 1.0
