"""A Slurm cluster for each module of tests; skipped with the reason where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.slurm.bed import Shape, SlurmBed
from e2e.slurm.programs import NoSlurm
from e2e.slurm.twin import Twin
from managers import eventually

Launch = Callable[..., Twin]


def _bed(shape: Shape, *, accounting: bool) -> Iterator[SlurmBed]:
    try:
        bed = SlurmBed(shape, accounting=accounting)
    except NoSlurm as error:
        pytest.skip(str(error))
    bed.start()
    yield bed
    bed.stop()


@pytest.fixture(scope="module")
def plain_bed() -> Iterator[SlurmBed]:
    """Two nodes of four GPUs, without accounting."""
    yield from _bed(Shape(), accounting=False)


@pytest.fixture(scope="module")
def accounting_bed() -> Iterator[SlurmBed]:
    """Two nodes of four GPUs, with slurmdbd and two accounts."""
    yield from _bed(Shape(), accounting=True)


@pytest.fixture
def slurm(plain_bed: SlurmBed) -> Iterator[SlurmBed]:
    """The cluster without jobs of others."""
    yield plain_bed
    empty(plain_bed)


@pytest.fixture
def accounting_slurm(accounting_bed: SlurmBed) -> Iterator[SlurmBed]:
    """The cluster with accounts, without jobs of others."""
    yield accounting_bed
    empty(accounting_bed)


def empty(bed: SlurmBed) -> None:
    """End all jobs."""
    bed.do("scancel", "--user=root")
    eventually(lambda: not bed.do("squeue", "-h"), within_s=120, every_s=0.2)


@pytest.fixture(name="launch")
def _launch(launch_slurm: Launch) -> Launch:
    return launch_slurm


@pytest.fixture
def launch_slurm(tmp_path: Path) -> Iterator[Launch]:
    """Starts Rota beside a cluster; stopped at the end of the test."""
    made: list[Twin] = []

    def begin(bed: SlurmBed, verb: str, *options: str) -> Twin:
        twin = Twin(bed, tmp_path / f"rota-{len(made)}", verb, *options)
        made.append(twin)
        return twin.start()

    yield begin
    for twin in made:
        twin.stop()
