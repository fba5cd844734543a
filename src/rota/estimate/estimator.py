"""Estimates of a label with an interval, the error measured for similar runs, and reasons not to trust them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rota.estimate.analytic_model import explains
from rota.estimate.cross_validation import Spread, Trust, measure, without_counts
from rota.estimate.extrapolation import Ranges
from rota.estimate.forest import EstimateMethod, LabelFit
from rota.estimate.observations import COUNTED, Observation, Value, with_label


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEstimate:
    """What a run will probably take; nine runs in ten lie between `low` and `high`.

    `error` is the median relative error on held-out runs of its kind, or of kinds held out whole where its own is
    unknown; None where there were too few. `outside` states in what respect the run lies beyond the training runs,
    where no error was measured.
    """

    label: str
    value: float
    low: float
    high: float
    error: float | None
    outside: tuple[str, ...] = ()
    unseen: bool = False
    """Whether its kind or model is unknown, so that the error is that of held-out kinds."""

    def is_trusted(self, bound: float) -> bool:
        """Return whether the measured error is below a bound and applies to this run."""
        return self.doubt(bound) is None

    def doubt(self, bound: float) -> str | None:
        """Return why the estimate is not trusted; None if it is."""
        if self.outside:
            return "; ".join(self.outside)
        if self.error is None:
            what = "kinds were seen to know the error of one that was not" if self.unseen else "runs like it were seen"
            return f"too few {what}"
        whose = "runs of an unknown kind or model have a measured error of" if self.unseen else "its measured error is"
        return f"{whose} {self.error:.0%}, above {bound:.0%}" if self.error > bound else None


class Estimator:
    """Estimates learned from runs. Forests are grown on demand: a file of it contains runs and no code."""

    def __init__(self, runs: Sequence[Observation], trust: Mapping[str, Trust]) -> None:
        self.runs = tuple(runs)
        self.trust = trust
        self._fits: dict[tuple[str, bool], LabelFit] = {}
        self._ranges: dict[str, Ranges] = {}

    @classmethod
    def learn(cls, runs: Sequence[Observation], labels: Sequence[str], seed: int = 0) -> Estimator:
        """Learn labels from runs, and measure their errors."""
        return cls(runs, {label: measure(label, runs, seed) for label in labels})

    def predict(self, label: str, attributes: Mapping[str, Value]) -> RunEstimate:
        """Estimate a label of a run; the default where nothing was learned. Refuse invalid attributes."""
        known = self.trust.get(label)
        if known is None:
            return unlearned(label)
        run = self._completed(Observation(attributes=attributes, labels={}))
        mine = with_label(self.runs, label)
        if label not in self._ranges:
            self._ranges[label] = Ranges(mine)
        self._ranges[label].refuse_nonsense(run)
        lacks_counts = all(map(explains, mine)) and not explains(run)
        value = float(self._fit(label, mine, lacks_counts).predict([run])[0])
        unseen = _is_new(run, mine)
        if lacks_counts:
            found = known.uncounted
        elif unseen:
            found = known.unseen
        else:
            error = known.errors.get(run.kind)
            found = None if error is None else Spread(reach=known.reach, error=error)
        width = math.exp(known.reach if found is None else found.reach)
        most = MOST.get(label, math.inf)
        return RunEstimate(
            label=label,
            value=min(value, most),
            low=min(value / width, most),
            high=min(value * width, most),
            error=None if found is None else found.error,
            outside=self._ranges[label].outside(run),
            unseen=unseen,
        )

    def _fit(self, label: str, mine: Sequence[Observation], lacks_counts: bool) -> LabelFit:
        if (label, lacks_counts) not in self._fits:
            self._fits[label, lacks_counts] = (
                LabelFit(label, [without_counts(run) for run in mine], EstimateMethod.FOREST)
                if lacks_counts
                else LabelFit(label, mine)
            )
        return self._fits[label, lacks_counts]

    def _completed(self, run: Observation) -> Observation:
        """Return the run with its model's family, and counts from a run that differs only in how it trains."""
        attributes = dict(run.attributes)
        for known in reversed(self.runs):
            if (
                "family" in known.attributes
                and "model" in attributes
                and known.attributes.get("model") == attributes["model"]
            ):
                attributes.setdefault("family", known.attributes["family"])
            if (
                not all(name in attributes for name in COUNTED)
                and explains(known)
                and same_model(known.attributes, attributes)
            ):
                attributes |= {name: known.attributes[name] for name in COUNTED}
        return Observation(attributes=attributes, labels={})


def _is_new(run: Observation, mine: Sequence[Observation]) -> bool:
    """Return whether no run of its kind, or none of its model, is known."""
    models = {other.attributes["model"] for other in mine if "model" in other.attributes}
    is_new_model = bool(models) and "model" in run.attributes and run.attributes["model"] not in models
    return is_new_model or all(other.kind != run.kind for other in mine)


def same_model(known: Mapping[str, Value], asked: Mapping[str, Value]) -> bool:
    """Return whether two runs train the same model on samples of the same size."""
    names = [name for name in ("model", "size") if name in known]
    return bool(names) and all(known[name] == asked.get(name) for name in names)


MOST: Mapping[str, float] = {"gpu_util_mean": 100.0}
"""Upper bounds of labels."""
DEFAULTS: Mapping[str, float] = {"gpus": 1.0, "cpu_cores": 4.0, "host_memory_mb": 4096.0, "gpu_memory_mb": 8192.0}
"""Defaults for jobs of which nothing is known, as in Liquid."""


def unlearned(label: str) -> RunEstimate:
    """Return the default, where nothing was learned."""
    value = DEFAULTS.get(label, math.nan)
    return RunEstimate(label=label, value=value, low=value, high=value, error=None)
