"""White-box model: memory and step time from countable properties of a model, with few fitted coefficients.

A step takes an overhead that does not grow with the batch, or the device's work, whichever is longer; memory is a sum.
Either is `(overhead^p + work^p)^(1/p)`, where work is a sum of counted amounts times their costs. A model may cost more
or less than others of the same counts, as far as its own runs support that; an unknown one is average.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rota.estimate.observations import COUNTED, Floats, Observation, Value

NEEDED = (*COUNTED, "batch")
SPREAD = 0.15
"""Relative deviations well above this are treated as outliers."""
LIKE_OTHERS = 0.3
OWN_OVERHEAD = 0.5
OWN_WORK = 1.0
"""Penalties that hold precisions and optimisers, and each model's overhead and work, to the mean."""
MOST_STEPS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A counted amount, and the prior of its unit cost."""

    amount: Callable[[Mapping[str, float]], float]
    first_guess: float
    by: str | None = None
    """Attribute by whose value the cost differs."""
    of_model: bool = False
    """Whether a model's own factor applies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """The label it explains and its terms; `power` 1 adds overhead and work, a high one takes the larger."""

    label: str
    power: float
    overhead: float
    terms: tuple[Term, ...]


def _activations(count: Mapping[str, float]) -> float:
    return count["activation_bytes_per_sample"] * count["batch"]


MEMORY = Law(
    label="gpu_memory_mb",
    power=1.0,
    overhead=60.0,
    terms=(
        Term(amount=lambda count: count["params"] * 4 / 2**20, first_guess=3.0, by="optimizer"),
        Term(amount=lambda count: _activations(count) / 2**20, first_guess=1.0, by="precision", of_model=True),
        Term(amount=lambda count: count["input_bytes_per_sample"] * count["batch"] / 2**20, first_guess=1.0),
    ),
)
STEP = Law(
    label="step_s",
    power=4.0,
    overhead=0.01,
    terms=(
        Term(
            amount=lambda count: count["flops_per_sample"] * count["batch"] / 1e12,
            first_guess=0.02,
            by="precision",
            of_model=True,
        ),
        Term(amount=lambda count: _activations(count) / 1e10, first_guess=0.02, by="precision", of_model=True),
        Term(amount=lambda count: count["params"] / 1e9, first_guess=0.01, by="optimizer"),
        Term(
            amount=lambda count: count["input_bytes_per_sample"] * count["batch"] / 1e9,
            first_guess=0.05,
        ),
    ),
)
LAWS: Mapping[str, Law] = {law.label: law for law in (MEMORY, STEP)}


def explains(run: Observation) -> bool:
    """Return whether all counts that a law needs are known."""
    return all(isinstance(run.attributes.get(name), float) for name in NEEDED)


class FittedLaw:
    """A law with its costs, fitted to runs by robust least squares of relative deviations."""

    def __init__(self, law: Law, runs: Sequence[Observation]) -> None:
        from scipy.optimize import least_squares

        self.law = law
        self._words = {
            name: sorted({str(run.attributes.get(name, "")) for run in runs})
            for name in ("precision", "optimizer", "model")
        }
        start, firmness = self._start()
        target = np.log([run.labels[law.label] for run in runs])
        shapes = self._shapes(runs)

        def deviations(theta: Floats) -> Floats:
            gap = (self._logs(theta, shapes)[0] - target) / SPREAD
            return np.concatenate([_softened(gap)[0], firmness * (theta - start)])

        def slopes(theta: Floats) -> Floats:
            logs, jacobian = self._logs(theta, shapes)
            _, slope = _softened((logs - target) / SPREAD)
            return np.vstack([slope[:, None] * jacobian / SPREAD, np.diag(firmness)])

        self._theta: Floats = least_squares(deviations, start, jac=slopes, max_nfev=MOST_STEPS).x

    def predict(self, runs: Sequence[Observation]) -> Floats:
        """Return the prediction for each run."""
        return np.asarray(np.exp(self._logs(self._theta, self._shapes(runs))[0]))

    def _start(self) -> tuple[Floats, Floats]:
        """Return initial logarithms and their penalties; costs by value are factors on a common one."""
        guess, firm = [np.log(self.law.overhead)], [0.0]
        for name in ("precision", "optimizer"):
            guess += [0.0] * len(self._words[name])
            firm += [LIKE_OTHERS] * len(self._words[name])
        for term in self.law.terms:
            own = len(self._words[term.by]) if term.by else 0
            guess += [np.log(term.first_guess)] + [0.0] * own
            firm += [0.1] + [LIKE_OTHERS] * own
        models = len(self._words["model"])
        guess += [0.0] * (2 * models)
        firm += [OWN_OVERHEAD] * models + [OWN_WORK] * models
        return np.array(guess), np.array(firm)

    def _shapes(self, runs: Sequence[Observation]) -> tuple[dict[str, Floats], list[Floats]]:
        """Return one-hot encoded attribute values and the counted amounts of each run."""
        chosen = {
            name: np.array([[float(str(run.attributes.get(name, "")) == word) for word in words] for run in runs])
            for name, words in self._words.items()
        }
        counts = [{name: _float(run.attributes[name]) for name in NEEDED} for run in runs]
        return chosen, [np.array([term.amount(count) for count in counts]) for term in self.law.terms]

    def _logs(self, theta: Floats, shapes: tuple[dict[str, Floats], list[Floats]]) -> tuple[Floats, Floats]:
        """Return the logarithm of the predictions and its gradient."""
        chosen, amounts = shapes
        precision, optimizer, model = chosen["precision"], chosen["optimizer"], chosen["model"]
        models = model.shape[1]
        own_overhead, own_work = theta[-2 * models : -models], theta[-models:]
        head = np.hstack([np.ones((len(model), 1)), precision, optimizer])
        overhead = np.exp(head @ theta[: head.shape[1]] + model @ own_overhead)
        at, parts, columns = head.shape[1], [], []
        for term, amount in zip(self.law.terms, amounts, strict=True):
            words = chosen[term.by] if term.by else np.zeros((len(model), 0))
            shape = np.hstack([np.ones((len(model), 1)), words])
            cost = shape @ theta[at : at + shape.shape[1]] + (model @ own_work if term.of_model else 0.0)
            parts.append(np.exp(cost) * amount)
            columns.append(shape)
            at += shape.shape[1]
        work = np.maximum(np.sum(parts, axis=0), 1e-12)
        power = self.law.power
        share = overhead**power / (overhead**power + work**power)
        rest = (1 - share) / work
        scaled = np.sum([part for term, part in zip(self.law.terms, parts, strict=True) if term.of_model], axis=0)
        jacobian = np.hstack(
            [
                share[:, None] * head,
                *((rest * part)[:, None] * shape for part, shape in zip(parts, columns, strict=True)),
                share[:, None] * model,
                (rest * scaled)[:, None] * model,
            ]
        )
        return np.log(overhead**power + work**power) / power, jacobian


def _softened(gap: Floats) -> tuple[Floats, Floats]:
    """Return deviations in which large ones count less than their square would, and the derivative."""
    stretch = np.sqrt(1 + gap**2)
    soft = np.sign(gap) * np.sqrt(2 * np.maximum(stretch - 1, 0.0))
    slope = np.where(np.abs(gap) < 1e-6, 1.0, gap / (stretch * np.where(soft == 0, 1.0, soft)))
    return soft, slope


def _float(value: Value) -> float:
    assert isinstance(value, float), "what a law needs is counted"
    return value
