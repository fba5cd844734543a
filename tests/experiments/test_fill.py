"""Clusters that are filled until nothing fits: what is left, by hand on small ones."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from rota.cli.main import status
from rota.core.errors import RotaError
from rota.experiments.fill import PLACEMENT_NAMES, FillState, PodRequest, fill, typical_of
from rota.files.cluster import read_cluster


def _pod(gpus: int = 1, milli: int = 1000, cpu: int = 0, types: tuple[str, ...] = ()) -> PodRequest:
    return PodRequest(gpus=gpus, milli=milli, cpu_milli=cpu, memory_bytes=0, types=types)


def test_pods_of_one_whole_gpu_fill_everything() -> None:
    found = fill(read_cluster("a=8/4,b=8/2"), [_pod()], "first-fit", seed=0, demand=1.2)

    assert (found.allocation, found.placed, found.fragmentation) == (1.0, 16, 0.0)
    assert found.allocation_by_type == {"a": 1.0, "b": 1.0}
    assert found.first_refused_at == pytest.approx(17 / 16)


def test_free_gpus_that_no_task_can_use_are_fragmented() -> None:
    found = fill(read_cluster("a=4/4"), [_pod(gpus=3)], "first-fit", seed=0, demand=2.0)

    assert found.allocation == 0.75
    assert found.fragmentation == pytest.approx(0.25)


def test_pods_stay_on_the_types_that_will_do() -> None:
    found = fill(read_cluster("a=4/4,b=4/4"), [_pod(types=("b",))], "best-fit", seed=0, demand=2.0)

    assert found.allocation_by_type == {"a": 0.0, "b": 1.0}


def test_expected_fragmentation_is_that_of_the_mix() -> None:
    half, whole = _pod(milli=500), _pod()
    state = FillState(read_cluster("a=2/2"), typical_of([half, half, half, whole]))
    state.place(_pod(milli=700), 0, [0])

    # 300 of the first GPU fit neither half nor whole; the second GPU suits both.
    assert state.fragments[0] == pytest.approx(300.0)
    state.place(half, 0, [1])
    # A whole GPU fits nowhere: 800 are lost to it (a quarter of the tasks), 300 to halves.
    assert state.fragments[0] == pytest.approx(0.25 * 800 + 0.75 * 300)


def test_gradient_descent_leaves_less_fragmented_than_spreading() -> None:
    requests = [_pod(milli=300), _pod(milli=700), _pod(), _pod(gpus=2), _pod(gpus=4)]
    cluster = read_cluster("a=64/4")

    def mean(placement: str) -> float:
        found = [fill(cluster, requests, placement, seed=seed, demand=1.3) for seed in range(3)]
        return float(np.mean([each.allocation for each in found]))

    assert mean("fgd") > mean("worst-fit")
    assert mean("fgd") >= mean("random")


@pytest.mark.parametrize("placement", PLACEMENT_NAMES)
def test_nothing_is_allocated_twice(placement: str) -> None:
    found = fill(read_cluster("a=8/4"), [_pod(milli=400), _pod(gpus=2)], placement, seed=1, demand=3.0)

    assert 0.5 < found.allocation <= 1.0
    assert found == fill(read_cluster("a=8/4"), [_pod(milli=400), _pod(gpus=2)], placement, seed=1, demand=3.0)


def test_unknown_placement_names_the_nearest() -> None:
    with pytest.raises(RotaError, match="unknown placement 'fgb'; did you mean 'fgd'"):
        fill(read_cluster("a=1/1"), [_pod()], "fgb", seed=0, demand=1.0)


def test_command_prints_a_row_per_placement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("id,submit_s,work,gpus\na,0,1,1\nb,0,1,2\n")
    given = ["fill", "--trace", str(trace), "--cluster", "a=8/4", "--placement", "best-fit", "--placement", "fgd"]

    assert status(given) == 0

    told = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in told] == ["placement", "best-fit", "fgd"]


def test_list_of_requests_needs_no_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "asked.csv").write_text("gpu_milli,cpu,mem_mib,kind\n500,2,1024,\n2000,8,4096,a\n250,1,512,a\n")
    columns = "gpus=gpu_milli:milli,cpus=cpu,memory=mem_mib:MiB,type=kind"
    given = ["fill", "--trace", str(tmp_path / "asked.csv"), "--columns", columns, "--cluster", "a=8/4"]

    assert status([*given, "--seeds", "2"]) == 0

    told = capsys.readouterr().out
    assert len(told.splitlines()) == 1 + len(PLACEMENT_NAMES)
    bounds = [float(number) for each in re.findall(r"\[(.*?)\]", told) for number in each.split(",")]
    assert all(bound >= 0.0 for bound in bounds)
    assert status([*given[:3], "--cluster", "a=8/4"]) == 2, "not a trace in any known format"
    assert status(["trace", "describe", str(tmp_path / "asked.csv"), "--columns", columns]) == 2, "it needs times there"
