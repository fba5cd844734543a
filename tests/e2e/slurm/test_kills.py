"""Rota, slurmctld and slurmd are killed while jobs run: each job ends once, as Slurm alone would have let it.

`ROTA_CHAOS=full` has 300 jobs and 12 kills; without it there are few. slurmctld writes its state every few seconds:
a killed one forgets the last seconds, with Rota and without. A job whose start falls into these seconds may run again.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from e2e.slurm.bed import ENDED, Shape, SlurmBed
from e2e.slurm.programs import NoSlurm
from e2e.slurm.twin import Twin
from managers import eventually

pytestmark = pytest.mark.slow
FULL = os.environ.get("ROTA_CHAOS") == "full"
JOBS, LAST = (300, 30) if FULL else (24, 6)
"""Jobs in all, and those that still wait when Rota is killed for good."""
KILLS = 12 if FULL else 3
FORGOTTEN_S = 8.0
"""What a killed slurmctld may forget: it writes its state every five seconds."""
NODES = 4


@dataclass(slots=True)
class Trial:
    """Jobs with what is expected of them, and the kills so far."""

    bed: SlurmBed
    folder: Path
    rng: random.Random
    expected: dict[str, frozenset[str]] = field(default_factory=dict)
    """States in which Slurm alone would let each job end."""
    forgot_s: list[float] = field(default_factory=list)
    """When slurmctld was killed."""

    def submit(self, count: int) -> None:
        """Submit random jobs: most succeed, some fail, some are cancelled, some wait for others."""
        for _ in range(count):
            number = len(self.expected)
            code = self.rng.choice([0, 0, 0, 0, 0, 0, 0, 3])
            shape = self.rng.choice([("--gres=gpu:1",), ("--gres=gpu:2",), ("--gres=gpu:4",), ("--gres=gpu:2", "-N2")])
            more = []
            if self.rng.random() < 0.1 and self.expected:
                more = [f"--dependency=afterany:{self.rng.choice(list(self.expected))}"]
            log = self.folder / f"runs-{number}"
            work = f"date +%s.%N >> {log}; sleep {self.rng.uniform(0.5, 3.0):.1f}; echo end >> {log}; exit {code}"
            job = self.bed.submit(work, "--partition=rota", f"--job-name=j{number}", *shape, *more)
            self.expected[job] = frozenset({"FAILED" if code else "COMPLETED"})

    def cancel_one(self) -> None:
        """Cancel a job as its user; it may have ended meanwhile."""
        job = self.rng.choice(list(self.expected))
        self.bed.do("scancel", job)
        self.expected[job] |= {"CANCELLED"}

    def wait_for_save(self) -> None:
        """Wait until slurmctld has written what was submitted: a killed one forgets the rest."""
        saved, since_s = self.bed.folder / "state" / "job_state", time.time()
        newest = list(self.expected)[-1]
        if self.bed.state(newest) not in ENDED:
            self.bed.do("scontrol", "update", f"jobid={newest}", "comment=saved")
        eventually(lambda: saved.exists() and saved.stat().st_mtime > since_s, within_s=60)

    def kill(self, rota: Twin, what: str) -> None:
        """Kill something with signal 9, and start it again."""
        match what:
            case "rota":
                rota.kill()
                rota.start()
            case "slurmctld":
                self.wait_for_save()
                self.forgot_s.append(time.time())
                self.bed.kill("slurmctld")
                time.sleep(self.rng.uniform(0.0, 2.0))
                self.bed.start_controller()
            case _:
                node = self.rng.choice(self.bed.node_names)
                self.bed.kill(node)
                time.sleep(self.rng.uniform(0.0, 2.0))
                self.bed.start_node(node)

    def check(self) -> None:
        """All have ended, each as it should and once."""
        states = self.bed.states()
        wrong = {job: states.get(job) for job, right in self.expected.items() if states.get(job) not in right}
        assert not wrong, {job: self.bed.do("scontrol", "-o", "show", "job", job) for job in list(wrong)[:3]}
        twice = {}
        for number, (job, right) in enumerate(self.expected.items()):
            path = self.folder / f"runs-{number}"
            starts = [float(line) for line in path.read_text().split() if line != "end"] if path.exists() else []
            assert starts or "CANCELLED" in right, f"job {job} never ran"
            if len(starts) > 1 and not self._was_forgotten(starts[:-1]):
                twice[job] = starts
        assert not twice, (twice, self.forgot_s)

    def _was_forgotten(self, starts: list[float]) -> bool:
        """Whether each start but the last came shortly before a kill of slurmctld, or the run was under way then."""
        return all(any(0 <= at - start < FORGOTTEN_S for at in self.forgot_s) for start in starts)


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    try:
        bed = SlurmBed(Shape(nodes=NODES))
    except NoSlurm as error:
        pytest.skip(str(error))
    bed.start()
    yield Trial(bed, tmp_path, random.Random(7))
    bed.stop()


@pytest.mark.long
def test_jobs_end_once_though_rota_and_slurm_are_killed(trial: Trial, tmp_path: Path) -> None:
    rota = Twin(trial.bed, tmp_path / "rota", "run", "--release-after", "20s").start()
    try:
        waves = KILLS + 1
        first = JOBS - LAST
        for wave in range(waves):
            trial.submit(first // waves if wave else first - first // waves * (waves - 1))
            if wave % 3 == 1:
                trial.cancel_one()
            if wave < KILLS:
                time.sleep(trial.rng.uniform(0.5, 3.0))
                trial.kill(rota, ("rota", "slurmctld", "slurmd")[wave % 3])
        trial.submit(LAST)
        rota.kill()  # and the watchdog releases what it held
        trial.bed.wait(list(trial.expected), within_s=300 if FULL else 120)
        trial.check()
    finally:
        rota.stop()
