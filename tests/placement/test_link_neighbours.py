"""Placement by Cassini's score: beside jobs with which a job can take turns, or on links that no other job fills."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from builders import Script, World, on
from rota.core.engine.draft import Draft
from rota.core.messages.decisions import Decision, Start
from rota.core.model.cluster import Cluster
from rota.core.model.job import Job, JobId, Role, TenantId
from rota.core.model.tenants import TenantPlan
from rota.core.state.inventory import Inventory
from rota.drivers.simulator.study import Setting, simulate
from rota.files.network.network_file import network_from_spec
from rota.network.demand import MODELS
from rota.placement.link_neighbours import LinkNeighbours
from rota.traces.workload import Submission, Workload
from tenancy.quota_world import own

TREE = "topology: fat-tree\nper_leaf: 2\nspines: 1\noversubscription: 2\nlink: 8Gbps\n"
"""A link carries 1 GB/s, and so does the trunk of two nodes: one job is as fast across it as below a switch."""


@pytest.fixture
def network(tmp_path: Path) -> str:
    (tmp_path / "net.yaml").write_text(TREE)
    return str(tmp_path / "net.yaml")


def sends(compute_s: float, gigabytes: float = 1.0) -> tuple[tuple[str, str], ...]:
    """The labels of a job that computes, then sends; two ranks for one second a gigabyte."""
    return (("compute_s", str(compute_s)), ("comm_bytes", str(gigabytes * 1e9)), ("overlap", "0"))


def started_on(decisions: Sequence[Decision]) -> list[int]:
    (found,) = [each for each in decisions if isinstance(each, Start)]
    return sorted(slot.node for slot in found.placement)


@pytest.mark.parametrize(("placement", "expected"), [("links", [1, 3, 4]), ("cassini", [4, 5, 6])])
def test_a_job_keeps_off_links_that_others_fill(network: str, placement: str, expected: list[int]) -> None:
    """Nodes 0 and 2 talk across the trunks of the first two switches; nothing runs below the others."""
    world = World(gpus=1, nodes=8, placement=f"{placement}:{network}:between=cassini")
    world.running("busy", at=(*on("n1", 1), *on("n3", 1)), workers=2, labels=sends(0.1))

    found = started_on(world.submit("new", workers=3, labels=sends(0.1)))

    assert found == expected


@pytest.mark.parametrize(("between", "expected"), [("cassini", [1, 3]), ("fair", [5, 7])])
def test_turns_decide_beside_which_job_it_is_better(network: str, between: str, expected: list[int]) -> None:
    """With turns, 1 s of 2.9 fits into the silence of a job that sends for 1 s of 3, and not into bursts.

    Where all send at the same time, the bursts of 0.35 s in 0.7 cost it less.
    """
    world = World(gpus=1, nodes=8, placement=f"cassini:{network}:between={between}")
    world.running("slow", at=(*on("n1", 1), *on("n3", 1)), workers=2, labels=sends(2.0))
    world.running("bursts", at=(*on("n5", 1), *on("n7", 1)), workers=2, labels=sends(0.35, 0.35))

    assert started_on(world.submit("new", workers=2, labels=sends(1.9))) == expected


def test_jobs_that_left_or_are_suspended_are_not_in_the_way(network: str) -> None:
    world = World(gpus=1, nodes=8, placement=f"cassini:{network}", policy="fifo")
    world.running("busy", at=(*on("n1", 1), *on("n3", 1)), workers=2, labels=sends(0.1))
    world.ended("busy")

    assert started_on(world.submit("new", workers=3, labels=sends(0.1))) == [0, 1, 2]


@pytest.mark.parametrize(
    ("policy", "tenancy"), [("las", "none"), ("las", "quota"), ("gandiva", "none"), ("themis", "none")]
)
def test_what_it_knows_of_other_jobs_are_their_claims(network: str, policy: str, tenancy: str) -> None:
    """After a course with preemptions and moves tried and undone, a look from the start finds the same jobs."""
    nodes = Cluster.uniform(("gpu", 16, 2)).nodes
    of = Cluster(nodes=nodes, tenants=TenantPlan(shares={TenantId("a"): own(8), TenantId("b"): own(8)}))
    world = World(of=of, placement=f"cassini:{network}", policy=policy, tenancy=tenancy)
    rng = np.random.default_rng(5)
    for number in range(24):
        labels = sends(float(rng.uniform(0.1, 2.0)), float(rng.uniform(0.1, 2.0)))
        world.settle(
            world.submit(
                f"j{number}", workers=int(rng.integers(1, 7)), labels=labels, work=1e6, tenant="ab"[number % 2]
            )
        )
        world.pass_s(float(rng.uniform(1.0, 400.0)))
        running = [name for name, state in world.states().items() if state == "running"]
        if running and rng.random() < 0.5:
            world.settle(world.ended(str(rng.choice(running))))
        world.settle(world.timer())
    model = network_from_spec(network, [str(node.id) for node in world.cluster.nodes])
    known = neighbours_of(world)
    fresh = LinkNeighbours()
    fresh.adopt(world.state)
    for each in (known, fresh):
        each.refresh(model, Inventory(world.cluster))

    assert known.wanted(model) == fresh.wanted(model)
    assert known.wanted(model)


def test_what_a_draft_undoes_is_undone(network: str) -> None:
    script = Script()
    world = World(gpus=1, nodes=8, placement=f"cassini:{network}", policy=script)
    world.submit("tried", workers=2, labels=sends(1.0))
    model = network_from_spec(network, [str(node.id) for node in world.cluster.nodes])
    seen = []

    def try_it(draft: Draft) -> None:
        mark = draft.mark()
        draft.assign(world.live("tried"), (*on("n1", 1), *on("n3", 1)))
        neighbours_of(world).refresh(model, draft.inventory)
        seen.append(bool(neighbours_of(world).wanted(model)))
        draft.undo(mark)
        neighbours_of(world).refresh(model, draft.inventory)
        seen.append(bool(neighbours_of(world).wanted(model)))

    script.todo, script.wakeup_s = [try_it], world.now_s
    world.timer()

    assert seen == [True, False]


def neighbours_of(world: World) -> LinkNeighbours:
    ledger = world.engine.state.ledger
    found = getattr(ledger, "_follower", None) or getattr(ledger, "_neighbours", None)
    assert isinstance(found, LinkNeighbours)
    return found


@pytest.mark.parametrize("between", ["fair", "cassini"])
def test_jobs_wait_less_for_links(network: str, between: str) -> None:
    """A cluster of 24 servers with two below each switch, where a job alone is as fast anywhere."""
    cluster = Cluster.uniform(("gpu", 24, 1))
    spec = f"{network}:between={between}"
    setting = Setting(cluster=cluster, network=network_from_spec(spec, [str(node.id) for node in cluster.nodes]))
    made = _workload(25)

    def slowdown(placement: str) -> float:
        rows = simulate(made, "fifo:backfill=true", replace(setting, placement=f"{placement}:{spec}")).history.jobs
        took = [((row.end_s or 0.0) - (row.start_s or 0.0)) for row in rows]
        return float(np.mean([one / (each.job.work or 1.0) for one, each in zip(took, made.submissions, strict=True)]))

    assert slowdown("cassini") - 1 < 0.6 * (slowdown("links") - 1)


def _workload(jobs: int) -> Workload:
    rng = np.random.default_rng(3)
    made = []
    at_s = 0.0
    for number in range(jobs):
        demand = MODELS[str(rng.choice(["vgg16", "bertbase", "roberta", "resnet101", "lm"]))]
        labels = sends(demand.compute_s * float(rng.uniform(1.2, 3.6)), demand.bytes / 1e9)
        job = Job(id=JobId(f"j{number}"), roles=(Role(count=int(rng.choice([2, 3, 4]))),), work=600.0, labels=labels)
        made.append(Submission(job=job, submit_s=at_s))
        at_s += float(rng.exponential(90.0))
    return Workload(submissions=tuple(made), source="generated", format="generated")
