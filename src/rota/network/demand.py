"""What an iteration of a job computes and sends: from its labels, the network file, or the table of known models.

The table has the published number of parameters of each model, four bytes each, and the rounded time of one iteration
on a V100 at a usual batch size.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from rota.core.errors import RotaError
from rota.core.model.job import Job
from rota.network.collectives import CollectiveKind, collective_kind


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationDemand:
    """One iteration of a job: seconds of computing, then an exchange of bytes by every rank.

    `overlap` is the fraction of the computing that can hide communication. `memory_pressure` is how much of the
    memory's bandwidth the computing uses, from 0 to 1.
    """

    compute_s: float
    bytes: float
    overlap: float = 0.0
    collective: CollectiveKind = CollectiveKind.RING
    memory_pressure: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.compute_s < math.inf or not 0 <= self.bytes < math.inf:
            raise RotaError(
                f"an iteration of {self.compute_s:g} s and {self.bytes:g} bytes; both must be numbers of 0 or more"
            )
        for name, value in (("overlap", self.overlap), ("memory_pressure", self.memory_pressure)):
            if not 0 <= value <= 1:
                raise RotaError(f"{name} is {value:g}; it must be from 0 to 1")


def _known(parameters: float, compute_s: float, overlap: float = 0.5) -> IterationDemand:
    return IterationDemand(compute_s=compute_s, bytes=4 * parameters, overlap=overlap)


MODELS: Mapping[str, IterationDemand] = {
    "resnet18": _known(11.7e6, 0.10),
    "resnet50": _known(25.6e6, 0.18),
    "resnet101": _known(44.5e6, 0.30),
    "resnet152": _known(60.2e6, 0.42),
    "vgg16": _known(138.4e6, 0.25),
    "vgg19": _known(143.7e6, 0.30),
    "alexnet": _known(61.1e6, 0.06),
    "inception3": _known(23.8e6, 0.25),
    "densenet121": _known(8.0e6, 0.20),
    "bertbase": _known(110e6, 0.20),
    "bertlarge": _known(340e6, 0.45),
    "bert": _known(340e6, 0.45),
    "roberta": _known(125e6, 0.22),
    "gpt2": _known(124e6, 0.25),
    "gpt3": _known(1.3e9, 1.2),
    "transformer": _known(65e6, 0.20),
    "lm": _known(67e6, 0.12),
    "dlrm": replace(_known(540e6, 0.10, 0.0), collective=CollectiveKind.ALL_TO_ALL),
}
"""Iterations of known models; all but DLRM reduce their gradients around a ring."""

LABELS = ("compute_s", "comm_bytes", "overlap", "collective", "memory_pressure")
_PLAIN = re.compile(r"\(.*?\)|[^a-z0-9]")


def plain_name(model: str) -> str:
    """Return a model's name in lower case without punctuation and without what is in brackets, such as a batch size."""
    return _PLAIN.sub("", model.lower())


def model_demand(model: str, own: Mapping[str, IterationDemand]) -> IterationDemand | None:
    """Return the iteration of a model: of the network file, else of the table."""
    if model in own:
        return own[model]
    return MODELS.get(plain_name(model))


def demand_of(
    job: Job, own: Mapping[str, IterationDemand], usual: IterationDemand | None = None
) -> IterationDemand | None:
    """Return the iteration of a job; labels win over its model, and the usual one stands in for unknown models."""
    labels = dict(job.labels)
    model = job.model or labels.get("model")
    known = (None if model is None else model_demand(model, own)) or usual
    given = {name: labels[name] for name in LABELS if name in labels}
    if not given:
        return known
    try:
        values = {name: float(text) for name, text in given.items() if name != "collective"}
    except ValueError:
        raise RotaError(f"job {job.id}: its labels {given} about the network must be numbers") from None
    if known is None:
        if "compute_s" not in values or "comm_bytes" not in values:
            raise RotaError(f"job {job.id}: it needs both labels compute_s and comm_bytes, or a model that is known")
        known = IterationDemand(compute_s=0.0, bytes=0.0)
    renamed = {"bytes" if name == "comm_bytes" else name: value for name, value in values.items()}
    try:
        kind = collective_kind(given["collective"]) if "collective" in given else known.collective
        return replace(known, collective=kind, **renamed)
    except RotaError as error:
        raise RotaError(f"job {job.id}: {error}") from None
