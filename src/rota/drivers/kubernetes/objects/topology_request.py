"""How close together the pods of a gang want to be, by a node label, in Rota's words, KAI's or Kueue's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rota.core.errors import RotaError, did_you_mean
from rota.drivers.kubernetes.objects.pod_annotations import PREFIX
from rota.drivers.kubernetes.objects.pods import Pod

_REQUIRED = (
    PREFIX + "topology-required",
    "kai.scheduler/topology-required-placement",
    "kueue.x-k8s.io/podset-required-topology",
)
_PREFERRED = (
    PREFIX + "topology-preferred",
    "kai.scheduler/topology-preferred-placement",
    "kueue.x-k8s.io/podset-preferred-topology",
)
TOPOLOGY_NOTES = (*_REQUIRED, *_PREFERRED)


class TopologyRequest(NamedTuple):
    """Labels whose value must, or should, be the same on all nodes of a gang; empty for none."""

    required: str = ""
    preferred: tuple[str, ...] = ()
    """The narrowest first; each is tried before the next, and all nodes after the last."""


ANYWHERE = TopologyRequest()


def topology_of(pod: Pod, levels: Sequence[str]) -> TopologyRequest:
    """Return what a pod asks for. `levels` are the known labels, the widest first; without any, every label is."""
    required = _stated(pod, _REQUIRED, levels)
    preferred = _stated(pod, _PREFERRED, levels)
    if not preferred:
        return TopologyRequest(required) if required else ANYWHERE
    wider = tuple(reversed(levels[: levels.index(preferred)])) if preferred in levels else ()
    if required in wider:
        wider = wider[: wider.index(required)]
    return TopologyRequest(required, (preferred, *wider))


def _stated(pod: Pod, names: Sequence[str], levels: Sequence[str]) -> str:
    for name in names:
        value = pod.annotations.get(name) or pod.labels.get(name) or ""
        if value and levels and value not in levels:
            raise RotaError(
                f"{name} is {value[:80]!r}, no level of `topology`; {did_you_mean(value[:80], list(levels))}"
            )
        if value:
            return value
    return ""
