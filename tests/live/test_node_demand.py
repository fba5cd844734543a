"""How many more nodes would start a job: the answer is true when they come, and one fewer is too few."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from rota.core.messages.events import JobArrived, NodeAdded
from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import DeviceType, Job, JobId, NodeId, Role, TenantId
from rota.core.model.tenants import ANY_TYPE, Share, TenantPlan
from rota.core.state.inventory import Inventory
from rota.core.state.state import State
from rota.live.loop.boot import Restored, Scheduling, as_scheduled
from rota.live.loop.cluster_config import ClusterConfig
from rota.live.loop.entry import LoopEntry
from rota.live.workers.node_demand import NodeDemand, node_demand

FAST, SLOW = DeviceType("h100"), DeviceType("v100")


def job(name: str, tasks: int, gpus: int, types: tuple[DeviceType, ...] = (), tenant: str = "default") -> Job:
    role = Role(name="worker", count=tasks, device_milli=gpus * 1000, device_types=types)
    return Job(id=JobId(name), name=name, tenant=TenantId(tenant), user="user", roles=(role,))


def waiting(cluster: Cluster, jobs: list[Job], policy: str = "fifo", tenancy: str = "none") -> Restored:
    """A manager with these jobs, submitted in turn."""
    scheduling = Scheduling(cluster=cluster, policy=policy, tenancy=tenancy)
    present = ClusterConfig(cluster, cluster, tenancy, has_fixed_nodes=False)
    was = as_scheduled(scheduling, State(Inventory(cluster)), {}, present, LoopEntry([], cluster=cluster))
    was.engine().step(1.0, [JobArrived(each) for each in jobs])
    return was


def cluster(*nodes: tuple[DeviceType, int], plan: TenantPlan | None = None) -> Cluster:
    made = [
        Node(id=NodeId(f"n{number}"), device_type=kind, devices=devices) for number, (kind, devices) in enumerate(nodes)
    ]
    return Cluster(nodes=tuple(made), tenants=plan)


TWO = cluster((FAST, 8), (SLOW, 4))


@pytest.mark.parametrize(
    ("jobs", "wanted"),
    [
        ([job("x", 2, 8, (FAST,))], [NodeDemand(type="h100", nodes=1, devices=8)]),
        ([job("x", 4, 8, (FAST,))], [NodeDemand(type="h100", nodes=3, devices=8)]),
        ([job("x", 3, 4, (SLOW,))], [NodeDemand(type="v100", nodes=2, devices=4)]),
        ([job("x", 1, 16, (FAST,))], []),
        ([job("x", 1, 4, (DeviceType("a100"),))], []),
        ([job("x", 1, 8, (FAST,))], []),
    ],
    ids=["one more", "three more", "of the other type", "no node is so large", "no such type", "it runs"],
)
def test_the_fewest_nodes_of_each_type(jobs: list[Job], wanted: list[NodeDemand]) -> None:
    assert node_demand(waiting(TWO, jobs), JobId("x")) == wanted


def test_jobs_before_it_count() -> None:
    before = [job("runs", 1, 8, (FAST,)), job("first", 2, 8, (FAST,))]
    was = waiting(TWO, [*before, job("x", 1, 8, (FAST,))])

    assert [each.nodes for each in node_demand(was, JobId("x"))] == [3]
    assert node_demand(was, JobId("nowhere")) == []


def test_a_limit_is_not_met_by_nodes() -> None:
    plan = TenantPlan(shares={TenantId("nlp"): Share(guaranteed={ANY_TYPE: 4}, limit={ANY_TYPE: 4})})
    jobs = [job("runs", 1, 4, tenant="nlp"), job("x", 1, 4, tenant="nlp")]

    assert node_demand(waiting(cluster((FAST, 8), plan=plan), jobs, tenancy="quota"), JobId("x")) == []


def test_words() -> None:
    found = [NodeDemand(type="v100", nodes=nodes, devices=4).sentence() for nodes in (1, 2, 40)]
    assert found == [
        "one more node of type v100 would start it",
        "two more nodes of type v100 would start it",
        "40 more nodes of type v100 would start it",
    ]


@settings(max_examples=25, deadline=None)
@given(
    asked=some.lists(some.tuples(some.integers(1, 6), some.integers(1, 4)), min_size=2, max_size=6),
    policy=some.sampled_from(["fifo", "priority", "las", "easy"]),
)
def test_it_is_true_when_they_come(asked: list[tuple[int, int]], policy: str) -> None:
    jobs = [job(f"j{number}", tasks, gpus) for number, (tasks, gpus) in enumerate(asked)]
    wanted = jobs[-1].id

    def starts(nodes: int) -> bool:
        was = waiting(cluster((SLOW, 4), (SLOW, 4)), jobs, policy)
        like = Node(id=NodeId("like"), device_type=SLOW, devices=4)
        engine = was.engine()
        engine.step(1.0, [NodeAdded(replace(like, id=NodeId(f"more{number}"))) for number in range(nodes)])
        return bool(engine.state.jobs[wanted].held)

    found = node_demand(waiting(cluster((SLOW, 4), (SLOW, 4)), jobs, policy), wanted)
    assert [each.type for each in found] in ([], ["v100"])
    assert starts(0) if not found else starts(found[0].nodes) and not starts(found[0].nodes - 1)
