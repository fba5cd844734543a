"""The five exercises of the tutorial about tenants, on a real Slurm: accounts are the teams, QOS their priorities."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.slurm.bed import Shape, SlurmBed
from e2e.slurm.conftest import Launch, empty
from e2e.slurm.programs import NoSlurm
from e2e.slurm.twin import Twin
from managers import eventually

pytestmark = pytest.mark.slow
TUTORIAL = Path(__file__).parents[3] / "docs" / "tutorial" / "tenants.md"
QOS = {"test": 10, "prod": 100}


class Lab:
    """The two machines, and jobs on them."""

    def __init__(self, bed: SlurmBed, rota: Twin) -> None:
        self._bed = bed
        self._rota = rota
        self._ids: dict[str, str] = {}

    def submit(self, name: str, account: str, *, qos: str = "normal", tasks: int = 1, run_s: float = 60) -> None:
        """Submit a batch job."""
        size = (f"--ntasks={tasks}", "--gpus-per-task=1", "--requeue")
        who = (f"--account={account}", f"--qos={qos}", f"--job-name={name}")
        self._ids[name] = self._bed.submit(f"sleep {run_s}", "--partition=rota", *size, *who)

    def runs(self, name: str) -> bool:
        """Whether a job runs, in Slurm."""
        return self._bed.state(self._ids[name]) == "RUNNING"

    def run(self, *names: str) -> None:
        """Wait until jobs run."""
        for name in names:
            eventually(lambda name=name: self.runs(name), within_s=60, every_s=0.2)  # type: ignore[misc] # bound

    def waits(self, name: str) -> str:
        """Wait until Rota says why a job waits, and return that."""

        def sentence() -> str:
            if self._rota.states().get(self._ids[name]) != "waiting":
                return ""
            return str((self._rota.client.why(self._ids[name])["reason"] or {}).get("sentence", ""))

        return eventually(sentence, within_s=60, every_s=0.2)


@pytest.fixture(scope="module")
def lab_bed() -> Iterator[SlurmBed]:
    """The machines of the tutorial."""
    try:
        bed = SlurmBed(Shape(names=("carol", "dan"), gpus=1, gpu_type="T4"), accounting=True)
    except NoSlurm as error:
        pytest.skip(str(error))
    bed.start()
    for account in ("default", "vc1"):
        bed.add_account(account)
    for name, priority in QOS.items():
        bed.add_qos(name, priority)
    bed.add_qos("opportunistic", 0, "usagefactor=0")
    yield bed
    bed.stop()


@pytest.fixture
def exercise(lab_bed: SlurmBed, launch_slurm: Launch, tmp_path: Path) -> Iterator[Callable[[str], Lab]]:
    """Starts Rota with the guarantees of a file of the tutorial."""

    def begin(file: str) -> Lab:
        found = re.search(rf"<!-- file: {re.escape(file)} -->\n```yaml\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)
        assert found is not None, file
        cells = tmp_path / file
        cells.write_text(found[1])
        options = ("--policy", "fifo", "--tenancy", "cells", "--guarantees", str(cells), "--release-after", "0")
        return Lab(lab_bed, launch_slurm(lab_bed, "run", *options))

    yield begin
    empty(lab_bed)


@pytest.mark.long
def test_a_tenant_is_safe_from_the_others(exercise: Callable[[str], Lab]) -> None:
    lab = exercise("lab.yaml")
    lab.submit("first", "vc1")
    lab.run("first")
    lab.submit("second", "vc1")

    assert "tenant vc1" in lab.waits("second")
    lab.submit("third", "default")
    lab.run("third")
    assert not lab.runs("second")


def test_priority_preempts_inside_a_tenant_and_the_other_goes_on_afterwards(exercise: Callable[[str], Lab]) -> None:
    lab = exercise("lab.yaml")
    lab.submit("test", "vc1", qos="test")
    lab.run("test")
    lab.submit("prod", "vc1", qos="prod", run_s=2)

    lab.run("prod")
    assert not lab.runs("test")
    lab.run("test")


@pytest.mark.long
def test_work_without_a_guarantee_uses_what_is_idle_and_yields(exercise: Callable[[str], Lab]) -> None:
    lab = exercise("lab.yaml")
    lab.submit("prod", "vc1", qos="prod")
    lab.submit("oppo", "vc1", qos="opportunistic")
    lab.run("prod", "oppo")
    lab.submit("owner", "default", run_s=2)

    lab.run("owner")
    assert not lab.runs("oppo")
    assert lab.runs("prod")
    lab.run("oppo")


@pytest.mark.long
def test_a_gang_starts_whole_or_not_at_all(exercise: Callable[[str], Lab]) -> None:
    lab = exercise("both.yaml")
    lab.submit("single", "default", run_s=4)
    lab.run("single")
    lab.submit("gang", "default", tasks=2)

    assert lab.waits("gang")
    assert not lab.runs("gang")
    lab.run("gang")


@pytest.mark.long
def test_tasks_that_need_not_start_together_start_one_by_one(exercise: Callable[[str], Lab]) -> None:
    lab = exercise("both.yaml")
    lab.submit("single", "default", run_s=6)
    lab.run("single")
    lab.submit("task-1", "default")
    lab.run("task-1")
    lab.submit("task-2", "default")

    assert lab.waits("task-2")
    lab.run("task-2")
