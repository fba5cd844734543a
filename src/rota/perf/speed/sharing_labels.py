"""Labels with which a job declares how it shares devices: meaning, valid values and the policies that read them.

This is the only place that defines them. Rota ignores labels that are not in the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rota.core.model.job import WHOLE
from rota.perf.speed.interleaving import read_stages


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingLabel:
    """A label: `accepts` decides about a text, given the thousandths a task requests; `wants` describes valid texts."""

    name: str
    means: str
    wants: str
    read_by: tuple[str, ...]
    accepts: Callable[[str, int], bool]


def _between(low: float, high: float) -> Callable[[str, int], bool]:
    return lambda text, _: low <= _number(text) <= high


def _number(text: str) -> float:
    """Return the number in a text; a value outside every range if it is not a number."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _is_limit(text: str, asked_milli: int) -> bool:
    return min(asked_milli, WHOLE) / WHOLE <= _number(text) <= 1


def _is_name(text: str, _: int) -> bool:
    return bool(text.strip())


def _by_name(name: str, means: str) -> SharingLabel:
    return SharingLabel(
        name=name, means=means, wants="a text that is not empty", read_by=("kubeshare",), accepts=_is_name
    )


SHARING_LABELS = (
    SharingLabel(
        name="utilization",
        means="its utilisation: the fraction of time in which it keeps its devices busy",
        wants="a number from 0 to 1",
        read_by=("antman", "lucid", "horus", "liquid"),
        accepts=_between(0, 1),
    ),
    SharingLabel(
        name="limit",
        means="the largest fraction of a device it may use while others leave it idle",
        wants="a number from the request of a task to 1",
        read_by=("kubeshare",),
        accepts=_is_limit,
    ),
    _by_name("affinity", "its tasks share a device with tasks of the same value"),
    _by_name("anti-affinity", "its tasks share no device with tasks of the same value"),
    _by_name("exclusion", "it shares devices only with jobs of the same value"),
    SharingLabel(
        name="persistent",
        means="the fraction of its device memory that it keeps between iterations",
        wants="a number from 0 to 1",
        read_by=("salus",),
        accepts=_between(0, 1),
    ),
    SharingLabel(
        name="weight",
        means="its share of time slices, in proportion to that of others",
        wants="a number from 0.001 to 1000",
        read_by=("olympian",),
        accepts=_between(0.001, 1000),
    ),
    SharingLabel(
        name="stages",
        means="the fractions of an iteration spent on storage, CPU, GPU and network",
        wants="four numbers of 0 or more separated by /, such as 0.4/0.2/0.3/0.1",
        read_by=("muri",),
        accepts=lambda text, _: read_stages(text) is not None,
    ),
)
_BY_LABEL = {label.name: label for label in SHARING_LABELS}


def fault_in_labels(labels: Iterable[tuple[str, str]], asked_milli: int) -> str | None:
    """Return what is wrong with the labels of a job whose tasks request that fraction; None if nothing."""
    for name, text in labels:
        known = _BY_LABEL.get(name)
        if known is not None and not known.accepts(text, asked_milli):
            wants = known.wants
            if name == "limit":
                wants = f"a number from {min(asked_milli, WHOLE) / WHOLE:g}, the request of a task, to 1"
            return f"labels.{name} is {text!r}; it must be {wants}"
    return None
