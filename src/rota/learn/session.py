"""Training session of the command line: files in and out, a learning curve, a checkpoint to resume from."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rota.core.errors import RotaError, did_you_mean
from rota.learn.evaluation.least_interference import fit_linear
from rota.learn.evaluation.play import mean_jct_s, play
from rota.learn.experience import Experience
from rota.learn.workloads import MODELS, WorkloadShape, workload
from rota.mechanisms.learned.actor import Actor, checked
from rota.mechanisms.learned.weights import Learned, save_learned

try:
    import torch

    from rota.learn.networks import RewardModel
    from rota.learn.reward import RewardFit, fit_reward
    from rota.learn.train import WAYS, Progress, Recipe, Trainer
except ModuleNotFoundError as _err:
    raise RotaError(f"training needs {_err.name}; install it with: pip install 'rota[learn]'") from None

PASSES = 40
EVERY = 25
"""Intervals between two points of the curve."""
SPARE: dict[str, Callable[[Recipe], Recipe]] = {
    "reward-model": lambda recipe: dataclasses.replace(recipe, use_reward_model=False),
    "exploration": lambda recipe: dataclasses.replace(recipe, use_exploration=False),
    "replay": lambda recipe: dataclasses.replace(recipe, use_replay=False),
}
Curve = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRequest:
    """Options of a training session."""

    experience: Path
    out: Path
    intervals: int
    seed: int
    device: str = "cpu"
    threads: int = 2
    reward: Path | None = None
    """File of the reward model, which is fitted only if the file does not exist."""
    checkpoint: Path | None = None
    resume: bool = False
    validate: int = 4
    clusters: int = 64
    ways: int = WAYS
    every: int = EVERY
    passes: int = PASSES
    without: tuple[str, ...] = ()
    command: str = ""


def run_training(order: TrainingRequest, tell: Callable[[int], None], say: Callable[[str], None]) -> Curve:
    """Train as requested, write the weights, and return the learning curve."""
    experience = Experience.load(order.experience)
    recipe = _recipe(order)
    device = _device(order.device)
    torch.set_num_threads(order.threads)
    began_s = time.process_time()
    state = _checkpoint(order, experience)
    reward, fit = None, None
    if recipe.use_reward_model:
        reward, fit = _reward(order, experience)
        say(
            f"reward model: {fit.samples:,} speeds; "
            f"held-out error {fit.median:.1%} (median), {fit.p90:.1%} (nine in ten)"
        )
    shape = WorkloadShape(models=tuple(model for model in MODELS if model in experience.kinds))
    trainer = Trainer(experience.kinds, recipe, reward, order.seed, shape, device)
    curve: Curve = []
    if state is not None:
        trainer.restore(state)
        curve = state["curve"]
        if trainer.interval >= order.intervals:
            say(
                f"checkpoint {order.checkpoint}: {trainer.interval} intervals are done, and --intervals "
                f"{order.intervals} requests no more; nothing is trained"
            )

    def point(progress: Progress) -> None:
        curve.append(
            {**dataclasses.asdict(progress), "cpu_s": time.process_time() - began_s, "jct_s": _jct_s(trainer, order)}
        )
        if order.checkpoint is not None:
            _save(order.checkpoint, {**trainer.state(), "curve": curve})
        tell(trainer.interval)

    trainer.run(max(order.intervals - trainer.interval, 0), point, order.every)
    network = checked(experience.kinds, trainer.net.exported())
    about = {"command": order.command, "reward_model": None if fit is None else _rounded(fit), "curve": _thin(curve)}
    save_learned(order.out, Learned(network, fit_linear(experience), about))
    if order.checkpoint is not None:
        _save(order.checkpoint, {**trainer.state(), "curve": curve})
    say(f"weights: {order.out}")
    return curve


def _reward(order: TrainingRequest, experience: Experience) -> tuple[RewardModel, RewardFit]:
    """Return the reward model, from its file if there is one."""
    if order.reward is None or not order.reward.is_file():
        reward, fit = fit_reward(experience, passes=order.passes, seed=order.seed)
        if order.reward is not None:
            kept = {"kinds": list(experience.kinds), "weights": reward.state_dict(), "fit": dataclasses.asdict(fit)}
            _save(order.reward, kept)
        return reward, fit
    kept = _loaded(order.reward, "--reward", experience, needs=("weights", "fit"))
    reward = RewardModel(len(experience.kinds))
    reward.load_state_dict(kept["weights"])
    return reward, RewardFit(**kept["fit"])


def _recipe(order: TrainingRequest) -> Recipe:
    """Return the training recipe, with ablations."""
    recipe = Recipe(clusters=order.clusters, ways=order.ways)
    for what in order.without:
        if what not in SPARE:
            raise RotaError(f"--without: {what!r} can't be left out; {did_you_mean(what, list(SPARE))}")
        recipe = SPARE[what](recipe)
    return recipe


def _device(name: str) -> torch.device:
    if name not in ("cpu", "cuda"):
        raise RotaError(f"--device is {name!r}; it must be cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise RotaError("--device cuda: PyTorch finds no GPU here; use --device cpu")
    return torch.device(name)


def _checkpoint(order: TrainingRequest, experience: Experience) -> dict[str, Any] | None:
    """Return the state to resume from, if requested."""
    if not order.resume or order.checkpoint is None:
        return None
    if not order.checkpoint.is_file():
        raise RotaError(f"--resume: no checkpoint {order.checkpoint}")
    return _loaded(order.checkpoint, "--checkpoint", experience, needs=("net", "adam"))


def _loaded(path: Path, what: str, experience: Experience, needs: tuple[str, ...]) -> dict[str, Any]:
    """Load a saved state of the same kinds of jobs."""
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
        known, _ = tuple(state["kinds"]), [state[name] for name in needs]
    except Exception:  # PyTorch raises many types for a file of another format
        raise RotaError(f"{what} {path}: not a complete file of `rota learn train {what}`") from None
    if known != experience.kinds:
        raise RotaError(f"{what} {path}: its kinds of jobs are not those of the experience")
    return state


def _save(path: Path, state: dict[str, Any]) -> None:
    """Write a file atomically."""
    draft = path.with_name(f"{path.name}.part")
    torch.save(state, draft)
    draft.replace(path)


def _jct_s(trainer: Trainer, order: TrainingRequest) -> float | None:
    """Return the mean completion time on validation workloads, used neither for training nor for the comparison."""
    if not order.validate:
        return None
    shape = WorkloadShape(servers=6)
    actor = Actor(checked(trainer.kinds, trainer.net.exported()))
    works = [workload(shape, f"validate {number}") for number in range(order.validate)]
    return sum(mean_jct_s(play(work, shape.servers, actor, placement="consolidate")) for work in works) / len(works)


def _rounded(fit: RewardFit) -> dict[str, float]:
    return {"samples": fit.samples, "median_error": round(fit.median, 4), "p90_error": round(fit.p90, 4)}


def _thin(curve: Curve) -> Curve:
    return [{key: point[key] for key in ("interval", "placed", "jct_s", "cpu_s")} for point in curve]
