"""What policies expect of links: the same speeds that jobs have there alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import World, job
from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import DeviceType, Elastic, Job, JobId, NodeId, Role
from rota.core.model.placement import Slot
from rota.drivers.simulator import study
from rota.drivers.simulator.study import Setting, simulate
from rota.network.collectives import CollectiveKind
from rota.network.fabrics import fat_tree
from rota.network.load import NetworkLoad
from rota.network.model import NetworkModel
from rota.network.topology import NetworkTopology, duplex
from rota.perf.speed.link_estimates import LinkEstimates
from rota.perf.speed.model import SpeedModel
from rota.traces.workload import Submission, Workload

FAST, SLOW = DeviceType("fast"), DeviceType("slow")
"""Types by the links of their nodes."""
NODES = tuple(
    Node(id=NodeId(f"n{number}"), devices=2, device_type=SLOW if number < 5 else FAST) for number in range(1, 9)
)
TOPOLOGY = NetworkTopology(
    nodes=tuple(str(node.id) for node in NODES),
    links=tuple(
        link for number in range(1, 9) for link in (*duplex(f"n{number}", "switch", 1e8 if number < 5 else 1e10),)
    ),
)
MODEL = NetworkModel(topology=TOPOLOGY)
TALKS = (("compute_s", "0.1"), ("comm_bytes", "1e8"), ("overlap", "0"))
COMPUTES = (("compute_s", "1"), ("comm_bytes", "1e4"), ("overlap", "0"))


@settings(max_examples=60, deadline=None)
@given(
    per_leaf=st.integers(1, 4),
    oversubscription=st.floats(1.0, 8.0),
    devices=st.integers(1, 4),
    firsts=st.integers(1, 7),
    ranks=st.integers(2, 12),
    compute_s=st.floats(0.01, 1.0),
    megabytes=st.floats(1.0, 1e3),
    kind=st.sampled_from(list(CollectiveKind)),
)
def test_an_estimate_is_the_speed_of_a_job_alone_on_the_first_nodes_of_a_type(
    per_leaf: int,
    oversubscription: float,
    devices: int,
    firsts: int,
    ranks: int,
    compute_s: float,
    megabytes: float,
    kind: CollectiveKind,
) -> None:
    nodes = [
        Node(id=NodeId(f"n{n}"), devices=devices, device_type=SLOW if n < firsts else FAST) for n in range(firsts + 12)
    ]
    topology = fat_tree(
        [str(node.id) for node in nodes],
        per_leaf=per_leaf,
        spines=1,
        link_bytes_per_s=1e9,
        oversubscription=oversubscription,
    )
    model = NetworkModel(topology=topology)
    labels = (("compute_s", str(compute_s)), ("comm_bytes", str(megabytes * 1e6)), ("collective", kind.value))
    asked = Job(id=JobId("j"), roles=(Role(count=ranks),), labels=labels)
    load = NetworkLoad(model, nodes)
    left, slots = ranks, []
    for node in range(firsts, len(nodes)):
        taken = min(left, devices)
        slots += [Slot(node, (1 << taken) - 1, taken)] if taken else []
        left -= taken
    load.enter(asked, tuple(slots))

    expected = LinkEstimates(model, nodes).factor(asked, FAST, ranks)

    assert load.speed(asked.id) >= expected * (1 - 1e-9)  # the order of ranks may make it faster, never slower
    if ranks <= devices or kind is CollectiveKind.RING:
        assert load.speed(asked.id) == pytest.approx(expected)


def test_jobs_without_known_traffic_are_as_fast_on_all_links() -> None:
    links = LinkEstimates(MODEL, NODES)

    assert links.factor(job("j", workers=4), SLOW, 4) == links.factor(job("j", workers=4), FAST, 4) == 1.0
    assert links.factor(job("j", workers=1, labels=TALKS), FAST, 1) == 1.0


@pytest.mark.parametrize("policy", ["gavel/max_min_fairness_perf", "gavel/max_sum_throughput_perf", "sia"])
def test_policies_give_good_links_to_the_job_that_needs_them(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All devices compute alike; the links of one type are a hundred times as fast, and one of two jobs sends much."""
    made = tuple(
        Submission(
            job=Job(id=JobId(name), roles=(Role(count=8, device_types=(FAST, SLOW)),), work=7200.0, labels=labels),
            submit_s=0.0,
        )
        for name, labels in (("computes", COMPUTES), ("talks", TALKS))
    )
    workload = Workload(submissions=made, source="two", format="generated")
    setting = Setting(cluster=Cluster(nodes=NODES[::-1]), network=MODEL)

    def mean_s() -> float:
        return sum((row.end_s or 0.0) for row in simulate(workload, policy, setting).history.jobs) / 2

    seeing_s = mean_s()
    monkeypatch.setattr(study, "_on_links", lambda speed, setting: speed)

    assert seeing_s < 0.9 * mean_s()


@pytest.mark.parametrize("policy", ["allox", "gandiva-fair", "sia", "rota"])
def test_a_job_goes_where_its_links_are_good(policy: str) -> None:
    """Though nodes with bad links come first."""
    world = World(of=Cluster(nodes=NODES), policy=policy, speed=SpeedModel(links=LinkEstimates(MODEL, NODES)))
    asked = job("j", workers=4, work=1e4, labels=TALKS, device_types=(SLOW, FAST))

    world.settle([*world.submit(job=asked), *world.timer()])

    assert {slot.node for slot in world.live("j").placement or ()} == {4, 5}


def test_an_elastic_job_grows_by_what_its_links_leave() -> None:
    """With 0.1 s of computing and 1 s of sending, a second node is not worth it; without a network it is linear."""
    tree = fat_tree(["n1", "n2"], per_leaf=1, spines=1, link_bytes_per_s=1e8)
    nodes = tuple(Node(id=NodeId(name), devices=2) for name in ("n1", "n2"))
    model = NetworkModel(topology=tree)
    asked = Job(id=JobId("j"), roles=(Role(count=2),), labels=TALKS, elastic=Elastic(min_tasks=1, max_tasks=4))
    plain = SpeedModel()
    speed = replace(plain, links=LinkEstimates(model, nodes))
    gpu = nodes[0].device_type
    load = NetworkLoad(model, nodes, by_request=plain.scales_by_links)
    load.enter(asked, (Slot(0, 0b11, 2), Slot(1, 0b11, 2)))

    assert [plain.at_size(asked, gpu, tasks) for tasks in (1, 2, 4)] == [0.5, 1.0, 2.0]
    assert [speed.at_size(asked, gpu, tasks) for tasks in (1, 2)] == [0.5, 1.0]
    assert speed.at_size(asked, gpu, 4) == pytest.approx(2.0 * load.speed(asked.id))
    assert speed.at_size(asked, gpu, 4) == pytest.approx(2.0 * 0.1 / (0.1 + 1.5))
    assert not replace(plain, scaling=0.9).scales_by_links(asked)


def test_sizes_follow_links() -> None:
    """A job that sends much stays on one node; the same job without a network takes both."""
    tree = fat_tree(["n1", "n2"], per_leaf=1, spines=1, link_bytes_per_s=1e8)
    cluster = Cluster.uniform(("gpu", 4, 2))
    links = LinkEstimates(NetworkModel(topology=tree), cluster.nodes)
    held = []
    for speed in (SpeedModel(), SpeedModel(links=links)):
        world = World(of=cluster, policy="afs-l", speed=speed)
        asked = job("j", workers=2, work=1e4, labels=TALKS, elastic=Elastic(min_tasks=1, max_tasks=4))
        world.settle(world.submit(job=asked))
        held.append(sum(slot.tasks for slot in world.live("j").placement or ()))

    assert held == [4, 2]
