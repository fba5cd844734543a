"""What failures cost a training on emulated devices: a gang that loses a node, and intervals between checkpoints.

Two parts. A gang loses a node and goes on from its checkpoint on a spare. Intervals: the time lost to failures with
blind intervals and with Young's. `make health` runs both; `python bench/work_lost.py intervals --seed 2` one.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:1] = [str(ROOT / "tests"), str(ROOT / "src")]  # not this folder, which has a gpu.py of its own

from managers import FINAL, Manager, eventually

LAYERS = 8

TRAIN = """
import os, time
import rota.sdk
saver = rota.sdk.Checkpoints(os.environ["CKPT"], name="rank" + os.environ["RANK"])
found = saver.load()
run = rota.sdk.steps(range(100000), save_every_s=float(os.environ["EVERY"] or 0) or None)
print("from", run.step, "on", os.environ["ROTA_NODE"], flush=True)
for batch in run:
    time.sleep(0.05)
    if run.step >= int(os.environ["STEPS"]):
        break
    if run.should_save:
        saver.save(run.step + 1, {"step": run.step + 1})
        saver.flush()
        time.sleep(float(os.environ.get("WRITE", "0")))
        run.saved()
"""


def gang() -> bool:
    """Kill all that runs on one node of a gang: it goes on from its checkpoint, on another node."""
    every_s, step_s = 1.0, 0.05
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(TRAIN)
        program = folder / "checks" / "link"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\n[ -e {folder}/lost-$ROTA_NODE ] || exit 0\necho '{{\"status\": 2}}'; exit 2\n")
        program.chmod(0o755)
        (folder / "up.yaml").write_text("health: {every: 1s, checks: [], programs: checks, spares: 1}\n")
        manager = Manager(folder, "--emulate", "gpu=6/2", "--config", str(folder / "up.yaml")).start(within_s=120)
        try:
            eventually(lambda: manager.client.nodes()[2]["health_why"].startswith("spare"))
            job_id = manager.client.submit(
                {
                    "run": [sys.executable, str(folder / "train.py")],
                    "workers": 2,
                    "resources": {"gpus": 2},
                    "checkpoint": {"grace": "10s"},
                    "env": {"CKPT": str(folder / "ckpt"), "EVERY": str(every_s), "STEPS": "1000"},
                }
            )[0]
            eventually(lambda: (manager.client.job(job_id).get("progress") or {}).get("step", 0) > 60, within_s=120)
            lost_node = manager.client.job(job_id)["nodes"][1]
            done = manager.client.job(job_id)["progress"]["step"]
            waiting = manager.submit("true", resources={"gpus": 2})  # the queue is not empty
            begun = time.monotonic()
            (folder / f"lost-{lost_node}").touch()
            eventually(
                lambda: {n["id"]: n["health"] for n in manager.client.nodes()}[lost_node] != "healthy", within_s=60
            )
            manager.kill_on(lost_node)
            manager.wait(job_id, "running", within_s=60)
            eventually(lambda: "from" in manager.said(job_id), within_s=60)
            eventually(lambda: manager.client.job(job_id)["attempt"] == 2, within_s=60)
            eventually(lambda: b"from" in b"".join(manager.client.logs(job_id, attempt=2)), within_s=60)
            took_s = time.monotonic() - begun
            told = b"".join(manager.client.logs(job_id, attempt=2)).decode()
            resumed = int(told.split("from ")[1].split()[0])
            nodes = manager.client.job(job_id)["nodes"]
            state = manager.state(waiting)
            manager.client.act(job_id, "cancel")
        finally:
            manager.clean_up()
    lost_s = (done - resumed) * step_s
    print(f"\ngang: step {done} when {lost_node} was lost; from step {resumed} on {nodes} {took_s:.1f} s later")
    print(f"work lost: about {max(lost_s, 0.0):.2f} s of work; the interval is {every_s:g} s")
    print(f"the job behind it in the queue: {state}")
    return bool(resumed > 0 and lost_node not in nodes and lost_s <= every_s + 1.0)


def intervals(seed: int) -> bool:
    """Run the same training under failures with blind intervals and the adaptive one; compare the time lost.

    The manager knows the rate of failures, as from experience; how long a checkpoint takes, the job finds out.
    """
    write_s, mttf_s, steps = 0.3, 8.0, 600
    rows = []
    for title, every in (("every 0.3 s", "0.3"), ("every 20 s", "20"), ("adaptive", "")):
        rng = random.Random(seed)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "train.py").write_text(TRAIN)
            (folder / "up.yaml").write_text(f"health: {{failure_rate: {1000 * 86400 / mttf_s}}}\n")
            manager = Manager(folder, "--emulate", "gpu=2/2", "--config", str(folder / "up.yaml")).start(within_s=120)
            try:
                env = {"CKPT": str(folder / "ckpt"), "EVERY": every, "STEPS": str(steps), "WRITE": str(write_s)}
                asked = {"resources": {"gpus": 2}, "checkpoint": {"grace": "10s"}, "max_restarts": 1000, "env": env}
                job_id = manager.client.submit({"run": [sys.executable, str(folder / "train.py")], **asked})[0]
                manager.wait(job_id, "running", within_s=60)
                begun = time.monotonic()
                failures = _fail_at_random(manager, job_id, rng, mttf_s, within_s=150.0)
                took_s = time.monotonic() - begun
                done = (manager.client.job(job_id).get("progress") or {}).get("step", 0)
            finally:
                manager.clean_up()
        rows.append((title, failures, took_s, done, 1 - done * 0.05 / took_s))
    print("\n| interval | failures | took (s) | steps done | time lost |")
    print("|---|---|---|---|---|")
    for title, failures, took_s, done, lost in rows:
        print(f"| {title} | {failures} | {took_s:.0f} | {done} | {lost:.0%} |")
    return bool(rows[-1][4] <= min(row[4] for row in rows[:-1]) + 0.05)


def _fail_at_random(manager: Manager, job_id: str, rng: random.Random, mttf_s: float, within_s: float) -> int:
    """Kill the supervisor of a job at random times until it has ended; return how often.

    The times between are exponential, but drawn by layers: few of them have the right mean, too, so that rows compare.
    """
    gaps_s = [-mttf_s * math.log(1 - (layer + rng.random()) / LAYERS) for layer in range(LAYERS)]
    rng.shuffle(gaps_s)
    failures, until = 0, time.monotonic() + within_s
    due = time.monotonic() + gaps_s[0]
    while time.monotonic() < until and manager.state(job_id) not in FINAL:
        if time.monotonic() >= due:
            due = time.monotonic() + gaps_s[(failures + 1) % LAYERS]
            for pid in manager.supervisors():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            failures += 1
        time.sleep(0.1)
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=["gang", "intervals", []], default=[])
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    parts = given.parts or ["gang", "intervals"]
    results = {}
    if "gang" in parts:
        results["gang"] = gang()
    if "intervals" in parts:
        results["intervals"] = intervals(given.seed)
    print("\n" + ", ".join(f"{name}: {'as it must be' if ok else 'NOT as it must be'}" for name, ok in results.items()))
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
