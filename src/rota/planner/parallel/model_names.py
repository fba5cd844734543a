"""Models as jobs name them: of the catalogue, with what is given of the plan, as `gpt-39b:tensor=8,pipeline=2`.

Data parallelism is never given: it follows from the devices that the job gets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from rota.core.errors import RotaError, did_you_mean
from rota.planner.parallel.catalogue import MODELS, NamedModel
from rota.planner.parallel.plans import ParallelPlan, Recompute, Sharding
from rota.planner.parallel.search import PlanConstraints

_NUMBERS = ("tensor", "pipeline", "micro_batch", "interleave")
_CHOICES = {"recompute": ("none", "full"), "zero": ("none", "optimizer", "gradients", "weights")}
_LARGEST = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedModel:
    """A model of the catalogue, and the constraints on its plan: one for each kind of sharding that is open."""

    named: NamedModel
    constraints: tuple[PlanConstraints, ...]

    @property
    def unit(self) -> int:
        """Devices of one replica as far as they are given: the devices of a plan are a multiple of it."""
        first = self.constraints[0]
        return (first.tensor or 1) * (first.pipeline or 1)

    @property
    def is_pinned(self) -> bool:
        """Whether tensor and pipeline parallelism are both given."""
        return self.constraints[0].tensor is not None and self.constraints[0].pipeline is not None


def is_planned(text: str | None) -> bool:
    """Return whether a job's model is one of the catalogue, with or without a plan."""
    return text is not None and text.partition(":")[0].lower() in MODELS


@lru_cache(maxsize=4096)
def planned_model(text: str) -> PlannedModel:
    """Read a model as a job names it."""
    name, _, given = text.partition(":")
    named = MODELS.get(name.lower())
    if named is None:
        raise RotaError(f"unknown model {name!r}; {did_you_mean(name.lower(), MODELS)}")
    fields: dict[str, str] = {}
    for part in filter(None, given.split(",")):
        key, is_pair, value = (word.strip() for word in part.partition("="))
        if key not in (*_NUMBERS, *_CHOICES):
            raise RotaError(f"model {text!r}: unknown {key!r}; {did_you_mean(key, (*_NUMBERS, *_CHOICES))}")
        if not is_pair or key in fields:
            raise RotaError(f"model {text!r}: give {key} once, as {key}=VALUE")
        fields[key] = value
    numbers = {key: _number(text, key, fields[key]) for key in _NUMBERS if key in fields}
    words = {key: _choice(text, key, fields[key]) for key in _CHOICES if key in fields}
    recompute = (Recompute(words["recompute"]),) if "recompute" in words else (Recompute.NONE, Recompute.FULL)
    shardings = (Sharding(words["zero"]),) if "zero" in words else (Sharding.NONE, Sharding.OPTIMIZER)
    base = PlanConstraints(
        tensor=numbers.get("tensor"),
        pipeline=numbers.get("pipeline"),
        micro_batch=numbers.get("micro_batch"),
        interleave=numbers.get("interleave"),
        recompute=recompute,
    )
    return PlannedModel(named=named, constraints=tuple(replace(base, sharding=kind) for kind in shardings))


def pinned(model: str, plan: ParallelPlan) -> str:
    """Return the name of a model with all of a plan but data parallelism."""
    name = model.partition(":")[0]
    return (
        f"{name}:tensor={plan.tensor},pipeline={plan.pipeline},micro_batch={plan.micro_batch},"
        f"interleave={plan.interleave},recompute={plan.recompute.value},zero={plan.sharding.value}"
    )


def _number(text: str, key: str, value: str) -> int:
    if not value.isascii() or not value.isdigit() or not 1 <= int(value) <= _LARGEST:
        raise RotaError(f"model {text!r}: {key} is {value!r}; give a whole number from 1 to {_LARGEST}")
    return int(value)


def _choice(text: str, key: str, value: str) -> str:
    if value not in _CHOICES[key]:
        raise RotaError(f"model {text!r}: {key} is {value!r}; {did_you_mean(value, _CHOICES[key])}")
    return value
