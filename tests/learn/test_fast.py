"""The arrays that agents are trained on tell the same as the simulator."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from rota.cli.main import status
from rota.core.errors import RotaError
from rota.core.model.placement import Slot
from rota.learn.collect import collect
from rota.learn.evaluation.compare import WAYS, ComparisonTask, mean_of, runs_for, scores
from rota.learn.evaluation.least_interference import LeastInterference, fit_linear
from rota.learn.evaluation.play import mean_jct_s, play
from rota.learn.experience import Experience
from rota.learn.fast_cluster import Arrival, FastClusters
from rota.learn.fast_speeds import speeds
from rota.learn.network_inputs import rows_of
from rota.learn.workloads import KIND_NAMES, MODELS, WorkloadShape, cluster_of, workload, workloads
from rota.mechanisms.learned.actor import checked, shapes
from rota.mechanisms.learned.weights import Learned, save_learned
from rota.perf.speed.shared_servers import SharedServers
from rota.policies.published.learned.harmony import SHIPPED

SERVERS = 4


@pytest.mark.parametrize("seed", range(12))
def test_speeds_are_those_of_the_simulator(seed: int) -> None:
    rng = random.Random(seed)
    shared = SharedServers(cluster_of(SERVERS).nodes)
    jobs = [each.job for each in workload(WorkloadShape(servers=SERVERS, jobs_per_server=4), seed).submissions]
    kind = np.zeros((1, len(jobs)), np.int64)
    tasks = np.zeros((2, 1, len(jobs), SERVERS))
    cores = np.ones((2, 1, len(jobs)))
    for number, job in enumerate(jobs):
        kind[0, number] = KIND_NAMES.index(str(job.model))
        slots = []
        for index, role in enumerate(job.roles):
            cores[index, 0, number] = role.cpu_milli / 1000
            for _ in range(role.count):
                node = rng.randrange(SERVERS)
                tasks[index, 0, number, node] += 1
                slots.append(Slot(node, 0, 1, index))
        shared.enter(job, tuple(slots))

    found = speeds(kind, tasks[0], tasks[1], cores[0], cores[1])[0]

    assert found == pytest.approx([shared.speed(job.id) for job in jobs])


def test_clusters_let_jobs_end_and_give_back_what_they_held() -> None:
    world = FastClusters(WorkloadShape(servers=2), [2, 1], "test")
    arrival = Arrival(KIND_NAMES.index("resnet50"), (1, 0), (3.0, 1.0), (1.0, 0.0), 120.0)
    world.place(0, arrival, np.array([1.0, 0.0]), np.zeros(2))

    assert world.free()[0, 0].tolist() == [3.0, 17.0]
    assert (world.free()[1, 1] < 0).all(), "the second cluster has one server"
    assert world.advance()[0] == pytest.approx(0.5)
    assert world.advance()[0] == pytest.approx(0.5)
    assert not world.active.any()
    assert world.free()[0, 0].tolist() == [4.0, 20.0]


def test_rows_show_neighbours_without_oneself() -> None:
    kind = np.array([[0, 1]])
    workers = np.array([[[1.0, 1.0], [0.0, 2.0]]])

    rows = rows_of(kind, 2, workers, np.zeros_like(workers))

    beside = rows.inputs[:, 3 + 6 : 3 + 6 + 3] * 4
    assert rows.owner.tolist() == [0, 0, 1]
    assert beside.tolist() == [[0.0, 0.0, 0.0], [0.0, 2.0, 0.0], [1.0, 0.0, 0.0]]


def test_experience_survives_its_file_and_holds_only_speeds(tmp_path: Path) -> None:
    seen = collect(WorkloadShape(servers=2, jobs_per_server=4), 2, 1, KIND_NAMES)
    path = tmp_path / "experience.npz"

    seen.save(path)
    again = Experience.load(path)

    assert again.samples == seen.samples > 20
    assert (again.speed <= 1.0 + 1e-6).all()
    assert np.allclose(again.speed, seen.speed)


def test_kinds_that_weights_do_not_know_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kinds = tuple(kind for kind in KIND_NAMES if kind not in ("vgg16", "hpc"))
    network = checked(kinds, {name: np.ones(shape) for name, shape in shapes(len(kinds), 4, 4, 4).items()})
    linear = np.zeros((len(kinds) + 1, 2 * (len(kinds) + 1) + 1))
    save_learned(tmp_path / "some.npz", Learned(network, linear))
    asked = ["--servers", "1", "--workloads", "1", "--policy", "harmony", "--weights", str(tmp_path / "some.npz")]

    assert status(["learn", "eval", *asked]) == 0

    assert "some.npz: it takes jobs of vgg16, hpc for one unknown kind" in capsys.readouterr().err


def test_models_left_out_occur_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "experience.npz")
    some = ["learn", "collect", out, "--servers", "2", "--workloads", "3"]

    assert status([*some, "--without", "vgg16", "--without", "alexnet"]) == 0
    seen = Experience.load(Path(out))
    assert seen.kinds == tuple(kind for kind in KIND_NAMES if kind not in ("vgg16", "alexnet"))
    assert seen.kind.max() < len(seen.kinds)

    assert status([*some, "--without", "hpc"]) == 2
    assert "unknown model 'hpc'" in capsys.readouterr().err
    assert status([*some, *(part for model in MODELS for part in ("--without", model))]) == 2
    assert "no model is left" in capsys.readouterr().err
    assert status(["learn", "collect", out, "--without", "vgg16", "--journal", out]) == 2
    assert "can't be used with --journal" in capsys.readouterr().err


def test_bad_experience_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "experience.npz"
    with pytest.raises(RotaError, match="there is no such file"):
        Experience.load(path)
    path.write_bytes(b"nothing")
    with pytest.raises(RotaError, match="can't be read"):
        Experience.load(path)


@pytest.mark.slow
def test_linear_model_avoids_whom_it_saw_to_be_slow_beside() -> None:
    seen = collect(WorkloadShape(servers=3, jobs_per_server=8), 6, 1, KIND_NAMES)

    linear = fit_linear(seen)

    alexnet = KIND_NAMES.index("alexnet")
    assert linear[alexnet, 1 + alexnet] > 0.02
    assert linear[alexnet, 1 + alexnet] > linear[alexnet, 1 + KIND_NAMES.index("resnet152")]
    assert (
        mean_jct_s(
            play(workload(WorkloadShape(servers=2, jobs_per_server=3), 1), 2, LeastInterference(KIND_NAMES, linear))
        )
        > 0
    )


@pytest.mark.parametrize("policy", WAYS)
def test_every_way_places_a_workload(policy: str) -> None:
    task = ComparisonTask(policy=policy, shape=WorkloadShape(servers=2, jobs_per_server=4), seed="3/0", weights=SHIPPED)

    assert 500 < mean_of(task) < 50_000
    assert mean_of(task) == mean_of(task)


def test_workloads_of_a_seed_differ_from_each_other_but_not_from_run_to_run() -> None:
    shape = WorkloadShape(servers=2)

    first, second = workloads(shape, 9, 2)

    assert first.submissions != second.submissions
    assert workloads(shape, 9, 2) == [first, second]


def test_scores_count_gains_from_the_best_usual_way() -> None:
    means = {
        "harmony": np.array([60.0, 80.0]),
        "load-balance": np.array([90.0, 110.0]),
        "pack": np.array([100.0, 120.0]),
        "liquid": np.array([50.0, 50.0]),
        "oracle": np.array([55.0, 45.0]),
    }

    found = {score.policy: score for score in scores(means, WorkloadShape(servers=6))}

    assert found["harmony"].avg_jct_s == 70.0
    assert found["harmony"].better_than_best_usual == pytest.approx(0.3)
    assert found["load-balance"].better_than_best_usual == 0.0
    low, high = found["harmony"].low, found["harmony"].high
    assert low is not None
    assert high is not None
    assert low < 0.3 < high
    assert (low + high) / 2 == pytest.approx(0.3)


def test_oracle_is_never_worse_than_what_it_could_have_done_like_another() -> None:
    means = {
        "harmony": np.array([60.0, 80.0]),
        "pack": np.array([100.0, 120.0]),
        "liquid": np.array([50.0, 50.0]),
        "oracle": np.array([55.0, 45.0]),
    }

    found = {score.policy: score for score in scores(means, WorkloadShape(servers=6))}

    assert found["oracle"].avg_jct_s == 47.5
    assert found["oracle"].part_of_oracle == pytest.approx(1.0)
    assert found["harmony"].part_of_oracle == pytest.approx(40.0 / 62.5)
    assert {name: score.best_in for name, score in found.items()} == {"harmony": 0, "pack": 0, "liquid": 1, "oracle": 1}


@pytest.mark.parametrize("names", [["harmony"], ["load-balance"], ["harmony", "liquid"]], ids="+".join)
def test_nothing_is_said_of_gains_where_there_is_nothing_to_compare_with(names: list[str]) -> None:
    found = scores({name: np.array([60.0, 80.0]) for name in names}, WorkloadShape(servers=6))

    assert {score.better_than_best_usual for score in found} == {None}
    assert {score.part_of_oracle for score in found} == {None}


def test_comparison_of_one_has_no_column_of_gains(capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["learn", "eval", "--servers", "1", "--workloads", "1", "--policy", "pack"]) == 0
    told = capsys.readouterr()
    assert told.out.split("\n")[0].split() == ["policy", "JCT", "s", "from", "to"]
    assert "unknown kind" not in told.err
    assert runs_for(["pack", "harmony"]) == ["harmony", "pack"]
    assert runs_for(["oracle"]) == list(WAYS)


def test_workload_of_which_no_job_uses_devices_has_its_times() -> None:
    works = [workload(WorkloadShape(servers=1, jobs_per_server=1), seed) for seed in range(20)]

    assert all(work.submissions[0].submit_s > 0 for work in works)


def test_folder_that_is_not_there_is_named_before_collecting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(["learn", "collect", str(tmp_path / "none" / "seen.npz"), "--workloads", "1000000"]) == 2

    assert "there is no folder" in capsys.readouterr().err
