"""What policies emit against what drivers support: every pair is accepted, or refused by one line that names both."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builders import cluster, job, node, on
from rota.core.engine.driver import Driver, DriverContract
from rota.core.engine.protocols import Capabilities
from rota.core.errors import RotaError
from rota.core.messages.decisions import (
    ALL_KINDS,
    Cause,
    Decision,
    DecisionKind,
    Lease,
    Move,
    Renew,
    Resize,
    Resume,
    Start,
    Stop,
    Suspend,
    kinds_of,
)
from rota.core.model.job import Elastic, Job, JobId
from rota.core.model.placement import in_turn, packed
from rota.drivers.kubernetes.driver import KubernetesDriver
from rota.drivers.local.driver import LocalDriver
from rota.drivers.simulator.world import World
from rota.live.loop.boot import Scheduling, boot
from rota.mechanisms.declare import MOVES
from rota.placement import style
from rota.policies import find_policy, names
from rota.store.database import open_database
from rota.store.records import Records
from rota.tenancy import allocator

K = DecisionKind
A = JobId("a")
DRIVERS: dict[str, type[Driver]] = {"simulator": World, "local": LocalDriver, "kubernetes": KubernetesDriver}
WITH_OPTIONS = [
    "fifo:backfill=true",
    "priority:consolidate_s=60",
    "liquid:consolidate_s=60",
    "gavel/max_min_fairness_perf:compat=none,elastic=true",
    "gavel/max_min_fairness_packed:compat=none,mixed_sharing=true",
    "salus:migrate=false",
    "olympian:migrate=true",
]
ON = on("n1", 2)
LEASE = Lease(10.0, 20.0)


def contract_of(driver: str) -> DriverContract:
    found: Any = DRIVERS[driver]
    contract = found.contract
    assert isinstance(contract, DriverContract)
    return contract


@pytest.mark.parametrize("driver", DRIVERS)
def test_every_driver_starts_and_stops_jobs(driver: str) -> None:
    assert {K.START, K.STOP} <= contract_of(driver).supports


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("policy", [*names(), *WITH_OPTIONS])
def test_policy_is_accepted_or_refused_by_one_line_naming_both_sides(policy: str, driver: str) -> None:
    declared, options = find_policy(policy)
    contract = contract_of(driver)
    missing = declared.kinds(declared.live_options(options)) - contract.supports

    if not missing:
        declared.refuse_driver(options, contract, live=True)
        return
    with pytest.raises(RotaError) as refusal:
        declared.refuse_driver(options, contract, live=True)

    line = str(refusal.value)
    assert line.startswith(f"policy {policy!r} emits ")
    assert f"the {contract.name} driver" in line
    assert all(kind.value in line for kind in missing)
    assert "\n" not in line


@pytest.mark.parametrize("policy", [*names(), *WITH_OPTIONS])
def test_simulator_and_local_driver_carry_out_every_policy(policy: str) -> None:
    declared, options = find_policy(policy)

    assert K.START in declared.kinds(declared.live_options(options))
    for driver in ("simulator", "local"):
        declared.refuse_driver(options, contract_of(driver), live=True)


@pytest.mark.parametrize(
    ("policy", "kinds"),
    [
        ("fifo", {K.START}),
        ("fifo:consolidate_s=60", MOVES),
        ("priority", {K.START, K.STOP, K.RESIZE}),
        ("themis", {K.START, K.STOP, K.RESIZE}),
        ("shockwave", {K.START, K.STOP, K.LEASE, K.RESIZE}),
        ("gavel/max_min_fairness_perf", {K.START, K.STOP, K.LEASE, K.RESIZE}),
        ("gavel/max_min_fairness_perf:compat=none,elastic=true", {K.START, K.STOP, K.LEASE, K.RESIZE}),
        ("gavel/max_min_fairness_packed", {K.START, K.STOP, K.LEASE, K.RESIZE, K.SHARE}),
        ("pollux", {K.START, K.STOP, K.RESIZE}),
        ("gandiva", ALL_KINDS - {K.LEASE}),
        ("salus", {K.START, K.SHARE}),
        ("salus:migrate=true", {K.START, K.STOP, K.RESIZE, K.SHARE, K.MOVE}),
    ],
)
def test_kinds_follow_from_parameters(policy: str, kinds: set[DecisionKind]) -> None:
    declared, options = find_policy(policy)

    assert declared.kinds(options) == kinds


def elastic() -> Job:
    return job("a", gpus=1, workers=2, elastic=Elastic(min_tasks=1, max_tasks=4))


@pytest.mark.parametrize(
    ("decision", "of", "kinds"),
    [
        (Start(A, ON), job("a", gpus=2), {K.START}),
        (Start(A, ON, LEASE), job("a", gpus=2), {K.START, K.LEASE}),
        (Start(A, packed(ON, 500)), job("a", gpus=2), {K.START, K.SHARE}),
        (Start(A, in_turn(ON, 500)), job("a", gpus=2), {K.START, K.SHARE}),
        (Start(A, packed(on("n1", 1), 500)), job("a", gpus=0.5), {K.START}),
        (Stop(A, Cause.PREEMPTED), job("a"), {K.STOP}),
        (Resize(A, ON), elastic(), {K.RESIZE}),
        (Resize(A, ON), job("a", gpus=2), {K.SHARE}),
        (Move(A, ON), job("a", gpus=2), {K.MOVE}),
        (Suspend(A), job("a"), {K.SUSPEND}),
        (Resume(A, ON), job("a", gpus=2), {K.RESUME}),
        (Resume(A, packed(ON, 500)), job("a", gpus=2), {K.RESUME, K.SHARE}),
        (Renew(A, ON, LEASE), job("a", gpus=2), {K.LEASE}),
        (Renew(A, packed(ON, 500), LEASE), job("a", gpus=2), {K.LEASE, K.SHARE}),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, set) else None,
)
def test_kinds_of_a_decision(decision: Decision, of: Job, kinds: set[DecisionKind]) -> None:
    assert kinds_of(decision, of) == kinds


def test_decision_that_a_driver_does_not_support_is_refused_and_not_ignored() -> None:
    contract = contract_of("kubernetes")

    contract.refuse_decision(Start(A, ON), job("a", gpus=2))
    with pytest.raises(RotaError, match=r"^job a: .* kind share, which the Kubernetes driver does not support"):
        contract.refuse_decision(Start(A, packed(ON, 500)), job("a", gpus=2))
    with pytest.raises(RotaError, match=r"^job a: .* kind suspend, which"):
        contract.refuse_decision(Suspend(A), job("a"))


@pytest.mark.parametrize(
    ("policy", "capabilities"),
    [
        ("fifo", Capabilities(asks_guard=True, spares_others=True)),
        ("gandiva", Capabilities(suspends=True, asks_guard=True, explains_turns=True)),
        ("antman", Capabilities(moves_parts=False, asks_guard=True)),
        ("liquid", Capabilities(overlaps=True, asks_guard=True)),
        ("liquid:overlap=false", Capabilities(asks_guard=True)),
        ("liquid-batch", Capabilities(overlaps=True, asks_guard=True, spares_others=True)),
        ("liquid-batch:overlap=false", Capabilities(asks_guard=True, spares_others=True)),
        ("harmony", Capabilities(asks_guard=True, spares_others=True)),
    ],
)
@pytest.mark.parametrize("wraps", ["", "consolidate_s=60", "protect=unsaved", "protect=unsaved,consolidate_s=60"])
def test_wrappers_pass_capabilities_on(policy: str, capabilities: Capabilities, wraps: str) -> None:
    if wraps:
        policy += f",{wraps}" if ":" in policy else f":{wraps}"
    declared, options = find_policy(policy)

    built = declared.build(options, allocator("none", style("any")))

    assert built.capabilities == capabilities


def dump(path: Path) -> list[str]:
    """All that a database holds."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "supports", "message"),
    [
        ("fifo:nonsense=3", ALL_KINDS, "^policy 'fifo' has no parameter 'nonsense'"),
        ("fifo:consolidate_s=often", ALL_KINDS, "^policy 'fifo': consolidate_s is 'often'"),
        ("gandiva", ALL_KINDS - {K.SUSPEND}, "^policy 'gandiva' emits suspend decisions, which the narrow driver"),
    ],
)
def test_refusal_at_boot_changes_nothing(
    tmp_path: Path, policy: str, supports: frozenset[DecisionKind], message: str
) -> None:
    records = Records(open_database(tmp_path / "rota.db"))
    before = dump(tmp_path / "rota.db")
    scheduling = Scheduling(cluster=cluster(node("n1", 4)), policy=policy)

    with pytest.raises(RotaError, match=message):
        boot(records, scheduling, replace(contract_of("local"), name="narrow", supports=supports))

    assert dump(tmp_path / "rota.db") == before
    records.close()
