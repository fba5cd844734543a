"""Gang-aware stride scheduling, split between servers: which jobs run in the next quantum.

A job's pass grows by the device-seconds that it received over its tickets, and the smallest pass goes first. A gang
that does not fit is skipped and keeps its pass, so that it is first the next time. Jobs that fit on one server compete
there, under one entry for the server; jobs of several servers compete with those entries (split stride).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class StrideEntry:
    """A job in the stride: its devices, its server if one holds them all, its pass (`at`) and its tickets."""

    seq: int
    size: int
    server: int | None
    at: float
    tickets: float


@dataclass(slots=True)
class Passes:
    """The pass of each job: device-seconds per ticket. Newcomers start at the smallest pass."""

    by_job: dict[int, float] = field(default_factory=dict)

    def set_jobs(self, seqs: Sequence[int]) -> None:
        """Set the jobs: add newcomers, and forget those that are gone."""
        kept = {seq: self.by_job[seq] for seq in seqs if seq in self.by_job}
        start = min(kept.values(), default=0.0)
        self.by_job = {seq: kept.get(seq, start) for seq in seqs}

    def charge(self, seq: int, device_s: float, tickets: float) -> None:
        """Add to a job's pass what it received."""
        if seq in self.by_job:
            self.by_job[seq] += device_s / max(tickets, 1e-9)

    @property
    def memory(self) -> Any:
        """All passes."""
        return list(self.by_job.items())


def next_quantum(entries: Sequence[StrideEntry], devices: Mapping[int, int]) -> list[StrideEntry]:
    """The jobs that run next, in order, on servers with these numbers of devices.

    Servers and jobs of several servers are considered by pass. A wide job takes devices from the servers that have most
    left and were not considered yet; a server gives what it has left to its own jobs.
    """
    local: dict[int, list[StrideEntry]] = {}
    for entry in entries:
        if entry.server is not None:
            local.setdefault(entry.server, []).append(entry)
    left = dict(devices)
    turns: list[tuple[float, int, int, StrideEntry | None]] = [
        (entry.at, 0, entry.seq, entry) for entry in entries if entry.server is None
    ]
    turns += [(_pass_of(jobs), 1, server, None) for server, jobs in local.items()]
    chosen: list[StrideEntry] = []
    for _, _, number, wide in sorted(turns, key=lambda turn: turn[:3]):
        if wide is None:
            room = left.pop(number, 0)
            for entry in sorted(local[number], key=lambda entry: (entry.at, entry.seq)):
                if entry.size <= room:
                    room -= entry.size
                    chosen.append(entry)
        elif wide.size <= sum(left.values()):
            need = wide.size
            for server in sorted(left, key=lambda server: (-left[server], server)):
                taken = min(need, left[server])
                left[server] -= taken
                need -= taken
            chosen.append(wide)
    return chosen


def _pass_of(jobs: Sequence[StrideEntry]) -> float:
    """A server's pass: the mean of its jobs' passes, weighted by tickets."""
    return sum(entry.at * entry.tickets for entry in jobs) / max(sum(entry.tickets for entry in jobs), 1e-9)


def balanced(
    tickets: Mapping[int, float],
    sizes: Mapping[int, int],
    homes: Mapping[int, int],
    devices: Mapping[int, int],
    movable: Sequence[int],
) -> dict[int, int]:
    """A server for every job, so that servers have about equal tickets per device.

    Jobs keep their server (`homes`) if they have one; others go where the load is least; and movable jobs go from the
    most loaded server to the least loaded one while that reduces the larger of the two loads.
    """
    found = {seq: home for seq, home in homes.items() if home in devices}
    load = dict.fromkeys(devices, 0.0)
    for seq, home in found.items():
        load[home] += tickets[seq]

    def least(size: int) -> int | None:
        fit = [server for server in devices if devices[server] >= size]
        return min(fit, key=lambda server: (load[server] / devices[server], -devices[server], server), default=None)

    for seq in sorted(tickets):
        target = least(sizes[seq]) if seq not in found else None
        if target is not None:
            found[seq] = target
            load[target] += tickets[seq]
    widest = max(devices.values(), default=1)
    lowest = min((load[server] / devices[server] for server in devices), default=0.0)
    for seq in movable:
        now = found.get(seq)
        if now is None or lowest + tickets[seq] / widest >= load[now] / devices[now]:
            continue
        better = least(sizes[seq])
        if better is None or now == better:
            continue
        if (load[better] + tickets[seq]) / devices[better] < load[now] / devices[now] * (1 - 1e-9):
            load[now] -= tickets[seq]
            load[better] += tickets[seq]
            found[seq] = better
            lowest = min(load[server] / devices[server] for server in devices)
    return found
