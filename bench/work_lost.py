"""What failures cost a training on emulated devices: a gang that loses a node, and intervals between checkpoints.

Two parts. A gang loses a node and goes on from its checkpoint on a spare. Intervals: the time lost to failures with
blind intervals and with Young's. `make health` runs both; `python bench/work_lost.py intervals --seed 2` one.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:1] = [str(ROOT / "tests"), str(ROOT / "src")]  # not this folder, which has a gpu.py of its own

from managers import Manager, eventually
from rota.health.checkpoint_interval import exact_ettr, young

LAYERS = 8
SLACK_S = 0.5
"""How much more work than that of an interval may be lost: the step under way, and what a busy machine adds."""
STEP_S, WRITE_S, MTTF_S = 0.05, 0.5, 10.8
ADAPTIVE = 0.0
EVERY_S = (1.0, 6.0, ADAPTIVE)
"""Ten minutes, an hour, and the adaptive interval, at 0.1 s a minute."""
REPLICAS, HORIZON_S, SPARE = 8, 100.0, 4

TRAIN = """
import os, time
import rota.sdk
saver = rota.sdk.Checkpoints(os.environ["CKPT"], name="rank" + os.environ["RANK"])
found = saver.load()
run = rota.sdk.steps(range(100000), save_every_s=float(os.environ["EVERY"] or 0) or None)
print("from", run.step, "on", os.environ["ROTA_NODE"], flush=True)
done = os.path.join(os.environ["CKPT"], "done")
os.makedirs(os.environ["CKPT"], exist_ok=True)
with open(os.path.join(os.environ["CKPT"], "starts"), "a+") as starts:
    starts.write(f"{time.time()} {run.step}\\n")
    starts.seek(0)
    attempts, saved = len(starts.readlines()), run.step
due = time.monotonic()
for batch in run:
    with open(done + str(os.getpid()), "w") as file:
        file.write(f"{attempts} {run.step} {saved} {run._interval.interval_s}")
    os.replace(file.name, done)
    due += 0.05  # a busy machine does not make the work longer
    time.sleep(max(due - time.monotonic(), 0))
    if run.step >= int(os.environ["STEPS"]):
        break
    if run.should_save:
        saver.save(run.step + 1, {"step": run.step + 1})
        saver.flush()
        time.sleep(float(os.environ.get("WRITE", "0")))
        run.saved()
        saved, due = run.step + 1, time.monotonic()
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
            waiting = manager.submit("true", resources={"gpus": 2})  # the queue is not empty
            begun = time.monotonic()
            (folder / f"lost-{lost_node}").touch()
            eventually(
                lambda: {n["id"]: n["health"] for n in manager.client.nodes()}[lost_node] != "healthy", within_s=60
            )
            done = int((folder / "ckpt" / "done").read_text().split()[1])
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
    """Run like trainings under the same failures with blind intervals and the adaptive one; compare the time lost.

    A minute of a job on 2,048 nodes of RSC-1 takes 0.1 s here: a failure every 108 minutes, 5 minutes for a checkpoint.
    The manager knows the rate of failures, as from experience; how long a checkpoint takes, the jobs find out.
    """
    rng = random.Random(seed)
    plans = [_failure_times(rng) for _ in range(REPLICAS)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(TRAIN)
        (folder / "up.yaml").write_text(f"health: {{checks: [], failure_rate: {1000 * 86400 / MTTF_S}}}\n")
        nodes = len(EVERY_S) * REPLICAS + SPARE
        manager = Manager(folder, "--emulate", f"gpu={nodes}/1", "--config", str(folder / "up.yaml")).start(
            within_s=120
        )
        try:
            trainings = [
                LiveTraining(manager, folder / f"{every_s:g}-{number}", every_s, plan)
                for number, plan in enumerate(plans)
                for every_s in EVERY_S
            ]
            _fail_as_planned(manager, trainings)
        finally:
            manager.clean_up()
        return _compare(trainings, plans)


def _failure_times(rng: random.Random) -> list[float]:
    """Times of failures, exponential but drawn by layers: few of them have the right mean, too."""
    times_s: list[float] = []
    at_s = 0.0
    while True:
        gaps_s = [-MTTF_S * math.log(1 - (layer + rng.random()) / LAYERS) for layer in range(LAYERS)]
        rng.shuffle(gaps_s)
        for gap_s in gaps_s:
            at_s += gap_s
            if at_s >= HORIZON_S:
                return times_s
            times_s.append(at_s)


class LiveTraining:
    """One training with an interval (0: the adaptive one) that fails at given times."""

    def __init__(self, manager: Manager, folder: Path, every_s: float, plan: list[float]) -> None:
        self.every_s = every_s
        self.due_s = list(plan)
        self.killed_at: list[tuple[float, int, float]] = []
        """When it failed, at which step, and the interval that it had then."""
        self.work_s = 0.0
        self._folder = folder
        folder.mkdir()
        env = {"CKPT": str(folder), "EVERY": str(every_s or ""), "STEPS": "100000", "WRITE": str(WRITE_S)}
        asked = {"resources": {"gpus": 1}, "checkpoint": {"grace": "10s"}, "max_restarts": 1000, "env": env}
        self.job_id = manager.client.submit({"run": [sys.executable, str(folder.parent / "train.py")], **asked})[0]

    @property
    def starts(self) -> list[tuple[float, int]]:
        """When its attempts began to train, and from which step."""
        try:
            lines = (self._folder / "starts").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [(float(at), int(step)) for at, step in map(str.split, lines)]

    @property
    def has_begun(self) -> bool:
        """Whether it has begun its first step."""
        return (self._folder / "done").exists()

    def progress(self) -> tuple[int, int, int, float]:
        """Attempts, steps done, steps saved, and the present interval."""
        attempts, step, saved, interval_s = (self._folder / "done").read_text().split()
        return int(attempts), int(step), int(saved), float(interval_s)

    def fail(self, manager: Manager) -> None:
        """Kill its node's supervisor, if one runs: a failure may come while it restarts."""
        nodes = manager.client.job(self.job_id)["nodes"]
        if nodes and manager.kill_on(nodes[0]):
            _, step, _, interval_s = self.progress()
            self.killed_at.append((time.time(), step, interval_s))

    def end(self) -> None:
        """Note the work done so far: that of the running attempt, or what was saved if none runs."""
        attempts, step, saved, _ = self.progress()
        runs = attempts == len(self.killed_at) + 1
        self.work_s = (step if runs else saved) * STEP_S

    @property
    def failures(self) -> list[tuple[float, float, float]]:
        """Of each failure the time until the next attempt trained, the work that was lost, and the interval."""
        starts, ends = self.starts, [at for at, _, _ in self.killed_at[1:]]
        found = []
        for (at, step, interval_s), until in zip(self.killed_at, [*ends, math.inf], strict=True):
            after = [(start, first) for start, first in starts if at < start < until]
            if after:
                found.append((after[0][0] - at, max(step - after[0][1], 0) * STEP_S, interval_s))
        return found


def _fail_as_planned(manager: Manager, trainings: list[LiveTraining]) -> None:
    """Let trainings fail at their times, counted from when all have begun."""
    eventually(lambda: all(each.has_begun for each in trainings), within_s=180)
    behind = [each.progress()[1] * STEP_S for each in trainings]
    begun = time.monotonic()
    while (passed_s := time.monotonic() - begun) < HORIZON_S:
        for each in trainings:
            if each.due_s and each.due_s[0] <= passed_s:
                each.due_s.pop(0)
                each.fail(manager)
        time.sleep(0.05)
    for each, before_s in zip(trainings, behind, strict=True):
        each.end()
        each.work_s -= before_s


def _compare(trainings: list[LiveTraining], plans: list[list[float]]) -> bool:
    """Print the time lost with each interval, and how much more the blind ones lose; True if both lose more."""
    lost = {
        every_s: [1 - each.work_s / HORIZON_S for each in trainings if each.every_s == every_s] for every_s in EVERY_S
    }
    restart_s = statistics.fmean([took_s for each in trainings for took_s, _, _ in each.failures])
    failures = sum(map(len, plans))
    print(
        f"\n{REPLICAS} trainings of {HORIZON_S:g} s with each interval, {failures} failures in each row, at one time;"
    )
    print(f"a checkpoint takes {WRITE_S:g} s, a restart {restart_s:.2f} s")
    if restart_s > MTTF_S / 3:
        share = restart_s / MTTF_S
        print(f"the machine is too busy to compare: a restart takes {share:.0%} of the time between failures")
    print("\n| interval | time lost | by the formula | more than adaptive | standard error | work lost, at most |")
    print("|---|---|---|---|---|---|")
    is_right = True
    for every_s in EVERY_S:
        interval_s = every_s or young(WRITE_S, MTTF_S)
        formula = 1 - exact_ettr(interval_s, WRITE_S, MTTF_S, restart_s)
        more = [blind - own for blind, own in zip(lost[every_s], lost[ADAPTIVE], strict=True)]
        title = f"every {every_s:g} s" if every_s else f"adaptive ({interval_s:.1f} s)"
        failed = [failure for each in trainings if each.every_s == every_s for failure in each.failures]
        work_s = [work for _, work, _ in failed]
        row = f"| {title} | {statistics.fmean(lost[every_s]):.1%} | {formula:.1%} | "
        if every_s:
            row += f"{statistics.fmean(more):+.1%} | {statistics.stdev(more) / math.sqrt(REPLICAS):.1%} |"
            is_right = is_right and statistics.fmean(more) > 0
        print(f"{row if every_s else row + '| |'} {statistics.fmean(work_s):.1f} s, {max(work_s):.1f} s |")
        beyond_s = max(work - had_s for _, work, had_s in failed)  # the adaptive interval changes with what is learned
        is_right = is_right and beyond_s <= SLACK_S
    return is_right


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
