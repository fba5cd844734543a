"""Training on a small scale: it learns, can be stopped and taken up again, and NumPy runs what it made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'rota[learn]'")

from rota.cli.main import status
from rota.core.errors import RotaError
from rota.learn import session
from rota.learn.collect import collect
from rota.learn.decisions import Ints, Situation
from rota.learn.evaluation.play import mean_jct_s, play
from rota.learn.experience import Experience
from rota.learn.fast_cluster import FREE, Arrival
from rota.learn.networks import ActorCritic, Views
from rota.learn.retrain import retrain
from rota.learn.reward import fit_reward
from rota.learn.session import TrainingRequest, run_training
from rota.learn.train import Progress, Recipe, Trainer
from rota.learn.workloads import KIND_NAMES, WorkloadShape, models_but, workloads
from rota.mechanisms.learned.actor import Actor, Network, checked, job_seen, pooled, servers_seen
from rota.mechanisms.learned.weights import load_learned
from rota.policies.published.learned.harmony import SHIPPED

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def experience() -> Experience:
    torch.set_num_threads(1)
    return collect(WorkloadShape(servers=3, jobs_per_server=8), 24, 1, KIND_NAMES)


def order(tmp_path: Path, experience: Experience, **more: object) -> TrainingRequest:
    experience.save(tmp_path / "experience.npz")
    given = {"intervals": 4, "clusters": 8, "every": 2, "passes": 3, "seed": 1, "threads": 1, "validate": 0, **more}
    return TrainingRequest(experience=tmp_path / "experience.npz", out=tmp_path / "weights.npz", **given)  # type: ignore[arg-type]


def quiet(*_: object) -> None:
    """Nobody listens."""


def test_reward_model_learns_speeds_from_experience(experience: Experience) -> None:
    _, brief = fit_reward(experience, passes=1, seed=1)
    _, longer = fit_reward(experience, passes=12, seed=1)

    assert longer.median < 0.15
    assert longer.median < 0.7 * brief.median


def test_numpy_scores_as_pytorch_does() -> None:
    torch.manual_seed(3)
    net = ActorCritic(len(KIND_NAMES))
    arrival = Arrival(3, (2, 1), (3.0, 2.0), (1.0, 0.0), 900.0)
    rng = np.random.default_rng(1)
    tasks, talking = rng.integers(0, 3, (5, 2, 10)).astype(float), rng.integers(0, 3, (5, 10)).astype(float)
    servers = servers_seen(tasks, talking)
    situation = Situation.of(
        [arrival], np.array([3]), len(KIND_NAMES), servers[None], np.ones((1, 5), np.bool_), np.tile(FREE, (1, 5, 1))
    )
    seen = (situation.servers, situation.open, situation.job_seen(), situation.free_seen(), situation.pairs_seen())
    views = Views(*(torch.from_numpy(part) for part in (*seen, situation.mask())))
    with torch.inference_mode():
        logits = net(views)[0].numpy().reshape(2, 5)

    numpy = Network(KIND_NAMES, net.exported())
    job = job_seen(3, len(KIND_NAMES), (2, 1), (2, 1), 0, 900.0)
    assert np.allclose(job, situation.job_seen()[0])
    for side in range(2):
        scores = numpy.scores(
            numpy.encoded(servers)[0],
            np.concatenate([job, np.eye(2, dtype=np.float32)[side]]),
            situation.free_seen()[0],
            situation.pairs_seen()[0, side],
            pooled(numpy.encoded(servers)[1]),
        )
        assert np.allclose(scores, logits[side], atol=1e-4)


def test_trained_placement_beats_the_untrained_one(experience: Experience) -> None:
    reward, _ = fit_reward(experience, passes=12, seed=1)
    trainer = Trainer(KIND_NAMES, Recipe(clusters=24, sizes=(3,), ways=6), reward, 1)
    before_s = jct_s(trainer)

    trainer.run(60, quiet)

    assert jct_s(trainer) < before_s


@pytest.mark.parametrize("without", ["reward-model", "exploration", "replay"])
def test_each_part_can_be_left_out(experience: Experience, tmp_path: Path, without: str) -> None:
    curve = run_training(order(tmp_path, experience, intervals=12, every=12, without=(without,)), quiet, quiet)

    assert [point["interval"] for point in curve] == [12]
    assert np.isfinite(curve[0]["cost"])
    assert curve[0]["cost"] > 0.5
    about = load_learned(tmp_path / "weights.npz").about
    assert (about["reward_model"] is None) == (without == "reward-model")


def jct_s(trainer: Trainer) -> float:
    actor = Actor(checked(KIND_NAMES, trainer.net.exported()))
    works = workloads(WorkloadShape(servers=3), 1, 4)
    return sum(mean_jct_s(play(work, 3, actor)) for work in works) / len(works)


def test_training_is_taken_up_where_it_stopped(experience: Experience, tmp_path: Path) -> None:
    checkpoint = tmp_path / "state.pt"
    run_training(order(tmp_path, experience, intervals=2, checkpoint=checkpoint), quiet, quiet)

    curve = run_training(order(tmp_path, experience, intervals=4, checkpoint=checkpoint, resume=True), quiet, quiet)

    assert [point["interval"] for point in curve] == [2, 4]
    assert curve[1]["placed"] > curve[0]["placed"]
    assert load_learned(tmp_path / "weights.npz").about["reward_model"]["samples"] == experience.samples


@pytest.mark.parametrize("asked", [1, 2])
def test_training_that_is_over_already_is_told_of(experience: Experience, tmp_path: Path, asked: int) -> None:
    checkpoint = tmp_path / "state.pt"
    run_training(order(tmp_path, experience, intervals=2, checkpoint=checkpoint), quiet, quiet)
    said: list[str] = []

    more = {"intervals": asked, "checkpoint": checkpoint, "resume": True, "without": ("reward-model",)}
    curve = run_training(order(tmp_path, experience, **more), quiet, said.append)

    assert [point["interval"] for point in curve] == [2]
    why = f"2 intervals are done, and --intervals {asked} requests no more; nothing is trained"
    assert said[0] == f"checkpoint {checkpoint}: {why}"


def test_checkpoint_is_no_model_of_speeds(tmp_path: Path, experience: Experience) -> None:
    checkpoint = tmp_path / "state.pt"
    run_training(order(tmp_path, experience, intervals=1, checkpoint=checkpoint), quiet, quiet)

    with pytest.raises(RotaError, match="not a complete file of `rota learn train --reward`"):
        run_training(order(tmp_path, experience, intervals=1, reward=checkpoint), quiet, quiet)


def test_training_meets_no_job_of_a_model_that_the_experience_lacks(tmp_path: Path) -> None:
    shape = WorkloadShape(servers=2, jobs_per_server=4, models=models_but(("vgg16", "alexnet")))
    kinds = tuple(kind for kind in KIND_NAMES if kind not in ("vgg16", "alexnet"))
    met: set[str] = set()

    class Noting(Trainer):
        def _place(self, at: Ints, arrivals: list[Arrival]) -> list[bool]:
            met.update(KIND_NAMES[arrival.kind] for arrival in arrivals)
            return super()._place(at, arrivals)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "Trainer", Noting)
        run_training(order(tmp_path, collect(shape, 8, 1, kinds), intervals=20), quiet, quiet)

    assert met == set(kinds)
    assert load_learned(tmp_path / "weights.npz").network.kinds == kinds


@pytest.mark.parametrize("ways", [1, 4])
def test_actor_learns_of_jobs_without_a_name(experience: Experience, ways: int) -> None:
    """The input for unknown kinds is trained, which it would not be if every job had a name."""
    reward, _ = fit_reward(experience, passes=1, seed=1)
    trainer = Trainer(KIND_NAMES, Recipe(clusters=8, sizes=(3,), ways=ways, minibatch=16), reward, 1)
    unknown = len(KIND_NAMES)
    before = trainer.net.job.weight[:, unknown].detach().clone()
    told: list[Progress] = []

    trainer.run(24, told.append, every=24)

    assert float((trainer.net.job.weight[:, unknown].detach() - before).abs().max()) > 1e-3
    assert told[0].critic > 0


def test_model_of_speeds_is_fitted_once_and_taken_from_its_file(experience: Experience, tmp_path: Path) -> None:
    said: list[str] = []
    asked = order(tmp_path, experience, intervals=2, reward=tmp_path / "reward.pt")
    first = run_training(asked, quiet, said.append)

    again = run_training(replace(asked, passes=1), quiet, said.append)

    assert [point["cost"] for point in first] == [point["cost"] for point in again]
    assert said[0] == said[2]
    other = collect(WorkloadShape(servers=2, jobs_per_server=2, models=models_but(("vgg16",))), 1, 1, KIND_NAMES[:3])
    other.save(tmp_path / "experience.npz")
    with pytest.raises(RotaError, match="kinds of jobs are not those"):
        run_training(asked, quiet, quiet)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"without": ("nothing",)}, "--without: 'nothing' can't be left out"),
        ({"device": "tpu"}, "--device is 'tpu'; it must be cpu or cuda"),
        ({"resume": True, "checkpoint": Path("nowhere.pt")}, "no checkpoint nowhere.pt"),
    ],
)
def test_impossible_orders_are_refused(
    experience: Experience, tmp_path: Path, more: dict[str, object], why: str
) -> None:
    with pytest.raises(RotaError, match=why.replace("(", r"\(")):
        run_training(order(tmp_path, experience, **more), quiet, quiet)
    assert not (tmp_path / "weights.npz").exists()


def test_learning_again_begins_with_the_weights_in_use(experience: Experience) -> None:
    now = load_learned(SHIPPED)

    new = retrain(experience, now, 1, part=0.05)

    assert new.about["seen"] == experience.samples
    assert new.network.kinds == now.network.kinds
    moved = [float(np.abs(new.network.of[name] - weight).max()) for name, weight in now.network.of.items()]
    assert 0 < max(moved) < 0.1


def test_folder_that_is_not_there_is_named_before_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "none" / "weights.npz"

    assert status(["learn", "train", str(out), "--experience", str(tmp_path / "experience.npz")]) == 2

    assert f"there is no folder {out.parent}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("--seed", "-1"), "invalid value for '--seed'"),
        (("--seed", str(2**63)), "invalid value for '--seed'"),
        (("--threads", "99999"), "invalid value for '--threads'"),
        (("--intervals", "nan"), "invalid value for '--intervals'"),
        (("--checkpoint", "."), ".: it is a folder; name a file"),
    ],
)
def test_impossible_options_are_named_before_training(
    capsys: pytest.CaptureFixture[str], given: tuple[str, ...], why: str
) -> None:
    assert status(["learn", "train", "weights.npz", "--experience", "none.npz", *given]) == 2

    assert capsys.readouterr().err.startswith(f"error: {why}")
