"""What Slurm said when it was last asked, and what of it Rota does not schedule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from rota.core.messages.events import Event, NodeBack, NodeDrained, NodeLost, NodeOccupied, NodeUndrained
from rota.core.model.job import NodeId
from rota.core.state.state import State
from rota.drivers.slurm.printed.records import SlurmJob, SlurmNode, SlurmReading


@dataclass(slots=True)
class SlurmView:
    """Jobs and nodes by name."""

    jobs: dict[str, SlurmJob] = field(default_factory=dict)
    nodes: dict[str, SlurmNode] = field(default_factory=dict)
    seen_s: float = 0.0
    mixed_among: tuple[SlurmNode, ...] = ()
    """All nodes, if any of them has GPUs of several types."""

    def take(self, jobs: SlurmReading[SlurmJob], now_s: float) -> None:
        """Replace the jobs; one whose record can't be understood stays as it was."""
        found = {job.id: job for job in jobs.found}
        if jobs.unread:
            for name, job in self.jobs.items():
                if name not in found and not jobs.unread.isdisjoint(("", str(job.number))):
                    found[name] = job
        self.jobs, self.seen_s = found, now_s

    def take_nodes(self, nodes: SlurmReading[SlurmNode]) -> None:
        """Replace the nodes; one whose record can't be understood stays as it was."""
        found = {node.name: node for node in nodes.found}
        if nodes.unread:
            for name, node in self.nodes.items():
                if name not in found and not nodes.unread.isdisjoint(("", name)):
                    found[name] = node
        self.nodes = found
        self.mixed_among = tuple(found.values()) if any(node.is_mixed for node in found.values()) else ()

    def reason(self, job_id: str) -> str:
        """Slurm's code of why a job waits; empty if it is not known."""
        job = self.jobs.get(job_id)
        return "" if job is None else job.reason

    def ranking(self) -> list[str] | None:
        """The waiting jobs by Slurm's priority, of which fair share, QOS and age are parts; None if by submission."""
        waiting = [job for job in self.jobs.values() if job.is_pending and job.priority]
        waiting.sort(key=lambda job: (job.submit_s, job.number, job.id))
        if all(one.priority >= two.priority for one, two in pairwise(waiting)):
            return None
        return [job.id for job in sorted(waiting, key=lambda job: -job.priority)]


def node_events(nodes: Mapping[str, SlurmNode], state: State, *, decides: bool = False) -> list[Event]:
    """The events that make the state of known nodes as Slurm has it.

    If Rota decides, nodes that are reserved, or have GPUs of several types, count as drained.
    """
    events: list[Event] = []
    for account in state.inventory.nodes:
        found = nodes.get(str(account.node.id))
        if found is None or account.removed:
            continue
        name = account.node.id
        if found.is_down and account.up:
            events.append(NodeLost(name))
        elif not found.is_down and not account.up:
            events.append(NodeBack(name))
        drained = found.is_drained or (decides and (found.is_reserved or found.is_mixed))
        if drained and not account.drained:
            events.append(NodeDrained(name))
        elif not drained and account.drained:
            events.append(NodeUndrained(name))
    return events


def occupied(jobs: Iterable[SlurmJob], nodes: Iterable[str]) -> dict[str, tuple[int, int, int]]:
    """What these jobs hold of each node: devices, CPUs in thousandths, bytes of memory."""
    held = dict.fromkeys(nodes, (0, 0, 0))
    for job in jobs:
        for share in job.shares:
            if share.node in held:
                gpus, cpus, memory = held[share.node]
                held[share.node] = (
                    gpus + share.gpus.count,
                    cpus + share.cpus * 1000,
                    memory + share.memory_bytes,
                )
    return held


def occupied_events(
    held: Mapping[str, tuple[int, int, int]], reported: dict[str, tuple[int, int, int]], state: State
) -> list[Event]:
    """The events that make what others hold as Slurm has it; `reported` is what was said before, and is updated."""
    events: list[Event] = []
    for account in state.inventory.nodes:
        name = str(account.node.id)
        gpus, cpus, memory = held.get(name, (0, 0, 0))
        now = (min(gpus, account.node.devices), cpus, memory)
        if reported.get(name, (0, 0, 0)) != now:
            reported[name] = now
            events.append(NodeOccupied(NodeId(name), *now))
    return events
