"""A reservation as a value: which nodes are kept for which jobs, and when."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from rota.core.engine.preemption_guard import accepts_preemption, can_resume
from rota.core.errors import RotaError
from rota.core.model.cluster import Node
from rota.core.model.job import DeviceType, Job
from rota.core.model.labels import RESERVED, RESERVED_LATER, Taint, Toleration

MOST_RESERVATIONS = 200
MOST_NODES_SHOWN = 5
NAMED = "reservation"
"""The label of a job with the id of the reservation that it names."""
START_S = 5.0
"""A job must be able to end this long before a reservation begins: starting and stopping take time too."""
GRACE_S = 60.0
"""How long a job takes to stop at its time limit, if its request does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReservation:
    """Nodes that only jobs of a group may use in a time. Moments are those of the wall clock.

    The group is a tenant, or users by the names under which they submit.
    """

    name: str
    id: str
    """Differs from that of every other reservation, also of one that has had the same name."""
    nodes: tuple[str, ...]
    from_s: float
    until_s: float
    tenant: str | None = None
    users: tuple[str, ...] = ()
    by: str = ""
    """The admin who made it."""
    made_s: float = 0.0
    """When that was; 0 where an older Rota did not note it."""
    is_by_name: bool = False
    """Whether only jobs that name it may use its nodes, and none is stopped for it, as in Slurm."""

    def admits(self, job: Job, owner: str) -> bool:
        """Return whether a job may use its nodes."""
        if self.is_by_name:
            return (NAMED, self.id) in job.labels
        return self.has(str(job.tenant), owner)

    def has(self, tenant: str, owner: str) -> bool:
        """Return whether a job belongs to the group."""
        return tenant == self.tenant if self.tenant is not None else owner in self.users

    @property
    def group(self) -> str:
        """The group for people, without the names of users."""
        return self.tenant or ("1 user" if len(self.users) == 1 else f"{len(self.users)} users")

    def taint(self, now_s: float) -> Taint:
        """Return what keeps the jobs of others off its nodes now."""
        return Taint(RESERVED if self.is_open(now_s) else RESERVED_LATER, self.id)

    def is_open(self, now_s: float) -> bool:
        """Return whether its time has begun."""
        return now_s >= self.from_s

    def latest_start_s(self, job: Job, ran_s: float) -> float | None:
        """Return until when a job can start and end before the reservation; None if its end is not known."""
        if job.time_limit_s is None:
            return None
        grace_s = GRACE_S if job.checkpoint is None else job.checkpoint.grace_s
        return self.from_s - START_S - grace_s - max(job.time_limit_s - ran_s, 0.0)

    def overlaps(self, other: NodeReservation) -> bool:
        """Return whether both want a node at the same time."""
        together = self.from_s < other.until_s and other.from_s < self.until_s
        return together and not set(self.nodes).isdisjoint(other.nodes)

    def words(self, now_s: float, nodes: Sequence[str]) -> str:
        """Return that some of its nodes are reserved, for people, with the group and the time."""
        more = "" if len(nodes) <= MOST_NODES_SHOWN else f" and {len(nodes) - MOST_NODES_SHOWN} more"
        named = ", ".join(nodes[:MOST_NODES_SHOWN]) + more
        until = _moment(self.until_s, now_s)
        time = f"until {until}" if self.is_open(now_s) else f"from {_moment(self.from_s, now_s)} until {until}"
        return f"{named} {'is' if len(nodes) == 1 else 'are'} reserved for {self.group} {time} UTC ({self.name})"

    def encode(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


def decode_reservation(value: Mapping[str, Any]) -> NodeReservation:
    """Return what `encode` wrote."""
    return NodeReservation(**{**value, "nodes": tuple(value["nodes"]), "users": tuple(value["users"])})


def may_be_stopped(job: Job) -> bool:
    """Return whether a job gives way to a reservation: it goes on from what it saved, or consented to start over."""
    return can_resume(job) or accepts_preemption(job)


def tolerations_for(
    job: Job, owner: str, ran_s: float, reservations: Sequence[NodeReservation], now_s: float
) -> tuple[tuple[Toleration, ...], float]:
    """Return which taints of reservations do not keep a job away, and until when that stays so by itself.

    A change of a reservation, such as its beginning, is not foreseen.
    """
    found: list[Toleration] = []
    until_s = float("inf")
    for each in reservations:
        if each.admits(job, owner):
            found += [Toleration(RESERVED, each.id), Toleration(RESERVED_LATER, each.id)]
        elif not each.is_open(now_s):
            latest_s = each.latest_start_s(job, ran_s)
            if may_be_stopped(job) and not each.is_by_name:
                found.append(Toleration(RESERVED_LATER, each.id))
            elif latest_s is not None and now_s <= latest_s:
                found.append(Toleration(RESERVED_LATER, each.id))
                until_s = min(until_s, latest_s)
    return tuple(found), until_s


def tolerant(job: Job, tolerations: tuple[Toleration, ...]) -> Job:
    """Return a job with these tolerations of reservations and no others; the same one if nothing changes."""
    wanted = [
        (*(each for each in role.tolerates if each.key not in (RESERVED, RESERVED_LATER)), *tolerations)
        for role in job.roles
    ]
    if all(role.tolerates == each for role, each in zip(job.roles, wanted, strict=True)):
        return job
    roles = (replace(role, tolerates=each) for role, each in zip(job.roles, wanted, strict=True))
    return replace(job, roles=tuple(roles))


def limited_by(job: Job, limit_s: float | None, fit: Callable[[Job], Job]) -> Job:
    """Return a job with the tolerations that it would have with another time limit than it states."""
    limited = fit(replace(job, time_limit_s=limit_s))
    return tolerant(job, tuple(each for each in limited.roles[0].tolerates if each.key in (RESERVED, RESERVED_LATER)))


def whole_nodes(nodes: Sequence[Node], gpus: int, kind: DeviceType | None) -> tuple[str, ...]:
    """Return nodes of one type that have so many devices together, earlier ones first; refuse if there are none."""
    types = [kind] if kind is not None else list(dict.fromkeys(node.device_type for node in nodes if node.devices))
    near: set[int] = set()
    for each in types:
        found = _exactly([node for node in nodes if node.device_type == each and node.devices], gpus, near)
        if found is not None:
            return found
    of_type = "" if kind is None else f" of type {kind!r}"
    ways = " or ".join(f"{number} GPUs" for number in _around(near, gpus))
    raise RotaError(
        f"gpus is {gpus}: no nodes{of_type} that are free of reservations then have exactly so many together; "
        + (f"a reservation takes whole nodes: ask for {ways}, or name nodes" if ways else "name nodes, or another time")
    )


def _exactly(nodes: Sequence[Node], gpus: int, near: set[int]) -> tuple[str, ...] | None:
    """Return nodes whose devices add up to a number; otherwise note in `near` the sums below and above it."""
    reach = [1]  # for each number of nodes considered: the sums that they can make, as a bit set
    for node in nodes:
        reach.append(reach[-1] | reach[-1] << node.devices)
    left = gpus
    if not reach[-1] >> gpus & 1:
        below, above = reach[-1] & ((1 << gpus) - 1), reach[-1] >> gpus
        near.update([below.bit_length() - 1] if below > 1 else [])
        near.update([gpus + (above & -above).bit_length() - 1] if above else [])
        return None
    found: list[str] = []
    for at in range(len(nodes), 0, -1):
        if not reach[at - 1] >> left & 1:
            found.append(str(nodes[at - 1].id))
            left -= nodes[at - 1].devices
    return tuple(reversed(found))


def _around(near: set[int], gpus: int) -> list[int]:
    """Return the nearest number below, and above."""
    return [*sorted(each for each in near if each < gpus)[-1:], *sorted(each for each in near if each > gpus)[:1]]


def _moment(at_s: float, now_s: float) -> str:
    """Return a moment in UTC, with its date unless that is today's."""
    at, now = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=each) for each in (at_s, now_s))
    return at.strftime("%H:%M" if at.date() == now.date() else "%Y-%m-%d %H:%M")
