"""What holders would give back is summed up once, and again whenever the node or its holders have changed."""

from __future__ import annotations

import random

import pytest

from rota.core.messages.reasons import Reason
from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import DeviceType, Job, JobId, NodeId, Role
from rota.core.model.placement import Placement
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.mechanisms.ordering.lanes import Entry, Holders, is_beyond, moved
from rota.mechanisms.ordering.needs import Need
from rota.mechanisms.ordering.node_yields import NodeClaim, NodeSum, NodeYield
from rota.placement import style
from rota.tenancy.open import OpenAllocator

NEEDS = [
    Need(Role(device_milli=milli, cpu_milli=cpus, memory_bytes=memory))
    for milli in (0, 200, 500, 1000, 3000)
    for cpus in (0, 3000)
    for memory in (0, 40)
]


def _inventory(rng: random.Random) -> Inventory:
    nodes = tuple(
        Node(
            id=NodeId(f"n{number}"),
            device_type=DeviceType("ab"[number % 2]),
            devices=4,
            cpu_milli=8000,
            memory_bytes=rng.choice((None, 100)),
        )
        for number in range(3)
    )
    return Inventory(Cluster(nodes=nodes))


def _job(seq: int, rng: random.Random) -> LiveJob:
    role = Role(
        count=rng.choice((1, 1, 2)),
        device_milli=rng.choice((200, 500, 500, 1000, 1000, 2000)),
        cpu_milli=rng.choice((0, 500)),
        memory_bytes=rng.choice((0, 10)),
    )
    return LiveJob(Job(id=JobId(str(seq)), roles=(role,)), seq, 0.0, 1.0)


def _claim(rng: random.Random, seq: int) -> NodeClaim:
    claim = NodeClaim((rng.random(), float(seq)), 0.0)
    claim.cpu_milli = rng.randrange(1000)
    claim.devices = 1 << rng.randrange(8)
    if rng.random() < 0.6:
        claim.share(0b11 << rng.randrange(8), rng.choice((100, 250)))
    return claim


def _held(found: NodeSum) -> tuple[int, int, dict[int, int]]:
    return found.cpu_milli, found.devices, found.shares or {}


@pytest.mark.parametrize("seed", range(20))
def test_the_sums_are_those_of_the_last_holders_in_order(seed: int) -> None:
    rng = random.Random(seed)
    given, claims = NodeYield(0.0), list[NodeClaim]()
    for seq in range(40):
        if claims and rng.random() < 0.4:
            claim = claims.pop(rng.randrange(len(claims)))
            given.remove(claim)
        else:
            claims.append(_claim(rng, seq))
            given.add(claims[-1])
        ranked = sorted(claims, key=lambda claim: claim.key, reverse=True)
        for count in rng.sample(range(len(ranked) + 1), min(3, len(ranked) + 1)):
            expected = NodeSum()
            for claim in ranked[:count]:
                expected.add(claim)
            assert _held(given.given(count)) == _held(expected)
            if count < len(ranked):
                assert given.count_after(ranked[count].key) == count


@pytest.mark.parametrize("seed", range(20))
def test_a_sum_that_is_kept_answers_as_a_new_one_whatever_happened_to_the_node(seed: int) -> None:
    rng = random.Random(seed)
    inventory = _inventory(rng)
    allocator = OpenAllocator(style("any"))
    placed: list[tuple[LiveJob, Placement]] = []
    kept = [NodeSum() for _ in inventory.nodes]
    answers = set()
    for seq in range(60):
        chance = rng.random()
        node = rng.randrange(len(inventory.nodes))
        if chance < 0.55:
            live = _job(seq, rng)
            offer = allocator.offer(live, inventory, 0.0)
            if not isinstance(offer, Reason):
                inventory.take(offer, live.job.roles)
                placed.append((live, offer))
        elif chance < 0.8 and placed:
            live, held = placed.pop(rng.randrange(len(placed)))
            inventory.give(held, live.job.roles)
        elif chance < 0.9:
            inventory.set_drained(node, not inventory.nodes[node].drained)
        else:
            account = inventory.nodes[node]
            inventory.occupy(node, rng.choice((0, 1)) if account.free else 0, 0, 0)
        for node, account in enumerate(inventory.nodes):
            for need in NEEDS:
                answer = NodeSum().has_room(need, account)
                assert kept[node].has_room(need, account) is answer
                answers.add(answer)
    assert answers == {False, True}


@pytest.mark.parametrize("slopes", [(0.0,), (-1.0,), (0.0, -1.0), (0.0, -1.0, -0.5)])
def test_holders_behind_a_key_come_with_the_last_first(slopes: tuple[float, ...]) -> None:
    rng = random.Random(len(slopes))
    now_s = 50.0
    holders = Holders()
    ordered: list[tuple[tuple[float, ...], LiveJob]] = []
    for seq in range(60):
        slope, key = rng.choice(slopes), (rng.uniform(0.0, 100.0), float(seq))
        live = _job(seq, rng)
        entry: Entry = (key, live)
        holders.add(entry, slope)
        ordered.append((moved(key, slope, now_s), live))
    ordered.sort(key=lambda entry: entry[0], reverse=True)
    first = ordered[20][0]

    behind = holders.behind(first, now_s)
    found = []
    while (entry_behind := behind.take()) is not None:
        found.append(entry_behind)

    assert found == ordered[:20]
    assert all(is_beyond(key, 0.0, now_s, first) for key, _ in found)
    assert behind.take() is None
