"""What-if simulation of the last days' jobs under another policy, with more nodes, or with other quotas.

The journal's jobs are run through the simulator twice, as things are and as they would be, so that like is compared
with like. That takes a process of its own, with low priority and a limit: the manager does not feel it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rota.core.codec.values import decode_cluster, encode_cluster
from rota.core.errors import RotaError, did_you_mean
from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import DeviceType, NodeId, TenantId
from rota.drivers.simulator.study import Setting, scheduler
from rota.live.loop.boot import Scheduling
from rota.perf.speed.model import Costs
from rota.policies import names
from rota.store.journal import JournalHeader, encode_header
from rota.store.records import Records

Json = dict[str, Any]
LONGEST_S = 120.0
MOST_ADDED = 10_000
_PROGRAM = "from rota.live.workers.whatif_worker import work; work()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The scenario: what differs from the running manager."""

    policy: str
    added: Mapping[DeviceType, int] = field(default_factory=dict)
    """Nodes to add, each like the first of its type."""
    guaranteed: Mapping[TenantId, Mapping[DeviceType, int]] = field(default_factory=dict)
    """Guarantees in place of those that the tenants have."""
    restart_s: float = 30.0
    """What each restart costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Results of one of the two runs."""

    policy: str
    devices: int
    metrics: Json
    jct_s: list[list[float]]
    """Completion times and the cumulative share of jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Results of both runs."""

    jobs: int
    left_out: int
    """Jobs that had not ended, or would not fit."""
    now: Side
    then: Side


class WhatIf:
    """Answers one question at a time."""

    def __init__(self, records: Records, scheduling: Scheduling) -> None:
        self._records = records
        self._scheduling = scheduling
        self._busy = asyncio.Lock()

    async def ask(self, cluster: Cluster, change: Change, days: float) -> Answer:
        """Run the jobs of the last days on the present cluster and in the scenario."""
        sides = [self._side(cluster, self._scheduling.policy, change.restart_s)]
        sides.append(self._side(changed(cluster, change), _named(change.policy), change.restart_s))
        if self._busy.locked():
            raise RotaError("another what-if is running; try again when it is done")
        async with self._busy:
            with tempfile.TemporaryDirectory(prefix="rota-whatif-") as folder:
                await asyncio.to_thread(self._write, Path(folder), sides, time.time() - days * 86400.0)
                said = await _run(Path(folder))
        found = json.loads(said)
        if "error" in found:
            raise RotaError(str(found["error"]))
        return Answer(
            jobs=found["jobs"],
            left_out=found["left_out"],
            now=Side(**found["sides"][0]),
            then=Side(**found["sides"][1]),
        )

    def _side(self, cluster: Cluster, policy: str, restart_s: float) -> Json:
        side: Json = {
            "policy": policy,
            "placement": self._scheduling.placement,
            "tenancy": self._scheduling.tenancy,
            "cluster": encode_cluster(cluster),
            "restart_s": restart_s,
        }
        scheduler(policy, setting_of(side))
        return side

    def _write(self, folder: Path, sides: list[Json], since_s: float) -> None:
        """The question as files: the journal since a moment, and the two cases."""
        header = JournalHeader(
            cluster=self._scheduling.cluster,
            policy=self._scheduling.policy,
            placement=self._scheduling.placement or "any",
            tenancy=self._scheduling.tenancy,
        )
        with (folder / "journal.jsonl").open("w", encoding="utf-8") as file:
            file.write(json.dumps(encode_header(header), separators=(",", ":")) + "\n")
            for body in self._records.steps(self._records.first_step_since(since_s)):
                file.write(body + "\n")
        (folder / "sides.json").write_text(json.dumps(sides), encoding="utf-8")


def _named(policy: str) -> str:
    """Return a policy by name; policy files are refused, since any user of the dashboard may ask."""
    name = policy.partition(":")[0]
    if name not in names():
        raise RotaError(f"unknown policy {name[:80]!r}; {did_you_mean(name[:80], names())}")
    return policy


def changed(cluster: Cluster, change: Change) -> Cluster:
    """Return the cluster of the scenario."""
    nodes = list(cluster.nodes)
    for kind, count in change.added.items():
        model = next((node for node in cluster.nodes if node.device_type == kind), None)
        if model is None:
            raise RotaError(f"there is no node of type {kind!r} to add more of")
        if not 0 <= count <= MOST_ADDED:
            raise RotaError(f"{count} nodes of type {kind} are to be added; it must be 0 to {MOST_ADDED:,}")
        nodes += [_another(model, number) for number in range(1, count + 1)]
    tenants = cluster.tenants
    if change.guaranteed:
        if tenants is None:
            raise RotaError("no tenant has a quota that could be changed")
        shares = dict(tenants.shares)
        for tenant, guaranteed in change.guaranteed.items():
            if tenant not in shares:
                raise RotaError(f"unknown tenant {tenant!r}; {did_you_mean(tenant, shares)}")
            shares[tenant] = replace(shares[tenant], guaranteed=dict(guaranteed))
        tenants = replace(tenants, shares=shares)
    return replace(cluster, nodes=tuple(nodes), tenants=tenants)


def _another(model: Node, number: int) -> Node:
    return replace(model, id=NodeId(f"{model.id}-more-{number}"))


async def _run(folder: Path) -> bytes:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _PROGRAM, str(folder), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        said, _ = await asyncio.wait_for(process.communicate(), LONGEST_S)
    except TimeoutError:
        raise RotaError(f"it took longer than {LONGEST_S:.0f} s; ask about fewer days") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        raise RotaError(f"the simulation ended with status {process.returncode}")
    return said


def setting_of(side: Json) -> Setting:
    """Return one of the two runs as a setting of the simulator."""
    return Setting(
        cluster=decode_cluster(side["cluster"]),
        placement=side["placement"],
        tenancy=side["tenancy"],
        costs=Costs(restart_s=float(side["restart_s"])),
    )
