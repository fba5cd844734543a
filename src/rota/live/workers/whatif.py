"""What-if: simulate the jobs of the last days under other scenarios (policy, nodes or quotas).

The journal's jobs are simulated in the present scenario and in the others, so that like is compared with like. The
distance of the present scenario's simulation from what really happened is the error bar of all of them. They run in a
separate process with low priority and a time limit, so that the manager is not slowed down.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rota.core.errors import RotaError, did_you_mean
from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import DeviceType, NodeId, TenantId
from rota.drivers.simulator.study import Setting, scheduler, setting_of
from rota.forecast.costs import CostLearner, LearnedCosts
from rota.live.loop.boot import Scheduling
from rota.live.reservations.stored import reservations_since
from rota.live.workers.forecast_worker import MOST_PAST, MOST_STEPS, past_run
from rota.live.workers.what_happened import SimulationError
from rota.policies import find_policy, names
from rota.scenario import Scenario, encode_scenario
from rota.store import clock
from rota.store.journal import JournalHeader, encode_header
from rota.store.records import Records

Json = dict[str, Any]
LONGEST_S = 120.0
MOST_ADDED = 10_000
SCENARIOS = "scenarios.json"
JOURNAL = "journal.jsonl"
_PROGRAM = "from rota.live.workers.{module} import work; work()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The result of one scenario, or what really happened."""

    policy: str
    devices: int
    metrics: Json
    jct_s: list[list[float]]
    """Completion times and the cumulative share of jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What really happened, the present scenario and the others, with the error bar of all simulations."""

    jobs: int
    left_out: int
    """Jobs that had not ended, or would not fit."""
    real: Side | None
    """None where no job was submitted and ended under the present policy."""
    now: Side
    alternatives: tuple[Side, ...]
    error: SimulationError | None
    """How far `now` is from `real`."""
    since_s: float
    """When the compared period begins."""

    def encode(self) -> Json:
        """The answer as JSON values."""
        return asdict(self)


class WhatIf:
    """Answers one question at a time."""

    def __init__(self, records: Records, scheduling: Scheduling) -> None:
        self._records = records
        self._scheduling = scheduling
        self._busy = asyncio.Lock()

    def present(self, cluster: Cluster, *, restart_s: float | None = None) -> Scenario:
        """The scenario in which the manager is now, with costs as learned from its journal, or a restart as given."""
        costs = self.learned().costs()
        declared, options = find_policy(self._scheduling.policy)
        live = declared.live_options(options)
        return Scenario(
            policies=(self._scheduling.policy if live == options else f"{declared.name}:{live}",),
            placement=self._scheduling.placement,
            tenancy=self._scheduling.tenancy,
            cluster=cluster,
            costs=costs if restart_s is None else replace(costs, restart_s=restart_s),
            network=self._scheduling.network,
        )

    def learned(self) -> LearnedCosts:
        """What starts, stops and restarts have cost lately."""
        learner = CostLearner()
        for _, body in self._records.last_steps(-1, MOST_STEPS):
            learner.take(json.loads(body))
        return learner.learned([past_run(row) for row in self._records.ended_since(0.0, MOST_PAST)])

    async def ask(
        self, now: Scenario, others: Sequence[Scenario], days: float, *, since_policy: bool = False
    ) -> Answer:
        """Simulate the jobs of the last days in the present scenario and in others, and compare with what happened.

        With `since_policy`, only jobs since the policy last changed.
        """
        for scenario in others:
            refuse_files(scenario.policy)
        added_s = now.costs.restart_s
        now, others = as_policy_can(now), [as_policy_can(scenario) for scenario in others]
        for scenario in (now, *others):
            scheduler(scenario.policy, setting_with(scenario))
        if self._busy.locked():
            raise RotaError("another what-if is being computed; try again when it is done")
        async with self._busy:
            with tempfile.TemporaryDirectory(prefix="rota-whatif-") as folder:
                since_s = clock.now_s() - days * 86400.0
                changed_s = await asyncio.to_thread(self._policy_since)
                since_s = max(since_s, changed_s) if since_policy else since_s
                await asyncio.to_thread(self._write, Path(folder), [now, *others], since_s, changed_s, added_s)
                found = await run_worker("whatif_worker", Path(folder))
        sides = [Side(**side) for side in found["sides"]]
        return Answer(
            jobs=found["jobs"],
            left_out=found["left_out"],
            real=None if found["real"] is None else Side(**found["real"]),
            now=sides[0],
            alternatives=tuple(sides[1:]),
            error=None if found["distance"] is None else SimulationError(**found["distance"]),
            since_s=since_s,
        )

    def _policy_since(self) -> float:
        """Return since when the present policy is in use, as far as the journal tells."""
        since_s = 0.0
        policy: str | None = None
        for _, header in self._records.segments():
            if header["policy"] != policy:
                policy, since_s = header["policy"], (header.get("snapshot") or {}).get("now_s", 0.0)
        return since_s

    def _write(
        self, folder: Path, scenarios: Sequence[Scenario], since_s: float, compare_from_s: float, added_s: float = 0.0
    ) -> None:
        """Write the question as files: the journal since a moment, and the scenarios.

        A job that was there at that moment arrives then, with the rest of its work, and is not compared. `added_s` is
        the run time that a restart added to a job that saves its progress.
        """
        header = JournalHeader(
            scenario=Scenario(
                policies=(self._scheduling.policy,),
                placement=self._scheduling.placement or "any",
                tenancy=self._scheduling.tenancy,
                cluster=self._scheduling.cluster,
                network=self._scheduling.network,
            )
        )
        value = encode_header(header)
        first = self._records.first_step_since(since_s)
        present = self._records.alive_at(since_s) if first else []
        rows = sorted(present, key=lambda row: row.started_s is None or row.started_s > since_s)
        value["snapshot"] = {"jobs": [_carried(row, since_s) for row in rows]}
        with (folder / JOURNAL).open("w", encoding="utf-8") as file:
            file.write(json.dumps(value, separators=(",", ":")) + "\n")
            for body in self._records.steps(first):
                file.write(body + "\n")
        question = {
            "scenarios": [encode_scenario(scenario) for scenario in scenarios],
            "carried": [row.id for row in rows],
            "compare_from_s": compare_from_s,
            "added_s": added_s,
            "reservations": [each.encode() for each in reservations_since(self._records, clock.shown_s(since_s))],
            "shift_s": clock.shift_s(),
        }
        (folder / SCENARIOS).write_text(json.dumps(question), encoding="utf-8")


def _carried(row: Any, at_s: float) -> Json:
    """Return a job that was there at a moment, as if it had arrived then."""
    runs = row.started_s is not None and row.started_s <= at_s
    return {"job": json.loads(row.job), "submitted_s": at_s, "work": 0.0, "run_since_s": at_s if runs else None}


def as_policy_can(scenario: Scenario) -> Scenario:
    """The scenario with the time of a stop counted as a restart, where the policy leaves no time for stops."""
    costs = scenario.costs
    if not costs.checkpoint_s or not find_policy(scenario.policy)[0].plans_in_rounds:
        return scenario
    folded = replace(costs, checkpoint_s=0.0, restart_s=costs.restart_s + costs.checkpoint_s)
    return replace(scenario, costs=folded)


def refuse_files(policy: str) -> None:
    """Refuse a policy that is not in the table: a page must not run code from files."""
    name = policy.partition(":")[0]
    if name not in names():
        raise RotaError(f"unknown policy {name[:80]!r}; {did_you_mean(name[:80], names())}")


def changed(
    cluster: Cluster,
    *,
    added: Mapping[DeviceType, int] | None = None,
    guaranteed: Mapping[TenantId, Mapping[DeviceType, int]] | None = None,
) -> Cluster:
    """The cluster with more nodes, each like the first of its type, and with other guarantees."""
    nodes = list(cluster.nodes)
    for kind, count in (added or {}).items():
        model = next((node for node in cluster.nodes if node.device_type == kind), None)
        if model is None:
            raise RotaError(f"there is no node of type {kind!r} to add more of")
        if not 0 <= count <= MOST_ADDED:
            raise RotaError(f"{count} nodes of type {kind} are to be added; it must be 0 to {MOST_ADDED:,}")
        nodes += [_another(model, number) for number in range(1, count + 1)]
    tenants = cluster.tenants
    if guaranteed:
        if tenants is None:
            raise RotaError("no tenant has a quota that could be changed")
        shares = dict(tenants.shares)
        for tenant, devices in guaranteed.items():
            if tenant not in shares:
                raise RotaError(f"unknown tenant {tenant!r}; {did_you_mean(tenant, shares)}")
            shares[tenant] = replace(shares[tenant], guaranteed=dict(devices))
        tenants = replace(tenants, shares=shares)
    return replace(cluster, nodes=tuple(nodes), tenants=tenants)


def _another(model: Node, number: int) -> Node:
    return replace(model, id=NodeId(f"{model.id}-more-{number}"))


async def run_worker(module: str, folder: Path) -> Json:
    """Let a worker process answer the question in a folder; raise its error."""
    program = _PROGRAM.format(module=module)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(folder), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), LONGEST_S)
    except TimeoutError:
        raise RotaError(f"it took longer than {LONGEST_S:.0f} s; ask about fewer days") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        raise RotaError(f"the simulation ended with status {process.returncode}")
    found: Json = json.loads(output)
    if "error" in found:
        raise RotaError(str(found["error"]))
    return found


def setting_with(scenario: Scenario) -> Setting:
    """The setting of a scenario that names no files."""
    if not isinstance(scenario.cluster, Cluster):
        raise RotaError(f"a what-if needs the cluster itself, not {scenario.cluster!r}")
    return setting_of(scenario, cluster=scenario.cluster)
