"""Which cluster a job is sent to: where it is expected to have begun, with its data, soonest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

GIGABYTE = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNeeds:
    """What of a job decides: tasks, devices of each, and where its data is and how large."""

    tasks: int
    devices: int
    """Devices of one task."""
    site: str | None = None
    data_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOffer:
    """What a cluster can offer a job."""

    cluster: str
    room: int
    """Tasks of the job that would fit if the cluster were empty."""
    free: int
    """Tasks of the job that fit now."""
    waits_s: float | None = None
    """The forecast time to its start; None if nothing forecasts it."""
    why_not: str = ""
    """Why the cluster's Rota refuses it; empty if it does not."""
    site: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The chosen cluster, and why in words; no cluster if none can take the job."""

    cluster: str | None
    why: str


def choose(
    needs: JobNeeds, offers: Sequence[ClusterOffer], bandwidth: Mapping[str, Mapping[str, float]], usual: float
) -> Choice:
    """Return the cluster with the least time to a start with data; a forecast counts before mere free devices."""
    able = [offer for offer in offers if offer.room >= needs.tasks and not offer.why_not]
    if not able:
        return Choice(cluster=None, why=_why_none(needs, offers))

    def order(offer: ClusterOffer) -> tuple[float, float, int, str]:
        ready_s = _start_s(needs, offer) + moves_s(needs, offer, bandwidth, usual)
        return ready_s, moves_s(needs, offer, bandwidth, usual), -offer.free, offer.cluster

    best = min(able, key=order)
    parts = [_words(needs, best)]
    moved_s = moves_s(needs, best, bandwidth, usual)
    if needs.site is not None:
        parts.append("its data is there" if not moved_s else f"moving its data takes {moved_s:.0f} s")
    others = [offer.cluster for offer in able if offer is not best]
    if others:
        parts.append(f"chosen before {', '.join(sorted(others))}")
    return Choice(cluster=best.cluster, why="; ".join(parts))


def moves_s(needs: JobNeeds, offer: ClusterOffer, bandwidth: Mapping[str, Mapping[str, float]], usual: float) -> float:
    """Return how long it takes to move a job's data to a cluster."""
    if needs.site is None or needs.site == offer.site or not needs.data_bytes:
        return 0.0
    rate = bandwidth.get(needs.site, {}).get(offer.site or "", usual)
    return needs.data_bytes / (rate * GIGABYTE)


def _start_s(needs: JobNeeds, offer: ClusterOffer) -> float:
    if offer.waits_s is not None:
        return max(offer.waits_s, 0.0)
    return 0.0 if offer.free >= needs.tasks else math.inf


def _words(needs: JobNeeds, offer: ClusterOffer) -> str:
    if offer.waits_s is not None:
        return f"{offer.cluster} is expected to start it in {max(offer.waits_s, 0.0):.0f} s"
    if offer.free >= needs.tasks:
        return f"{offer.cluster} has room for it now"
    return f"{offer.cluster} has room for {offer.free} of its {needs.tasks} tasks now"


def _why_none(needs: JobNeeds, offers: Sequence[ClusterOffer]) -> str:
    if not offers:
        return "no cluster answers"
    said = [
        f"{offer.cluster}: {offer.why_not or f'fits {offer.room} of {needs.tasks} tasks of {needs.devices} devices'}"
        for offer in sorted(offers, key=lambda each: each.cluster)
    ]
    return "no cluster can take it: " + "; ".join(said)
