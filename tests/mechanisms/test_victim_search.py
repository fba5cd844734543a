"""The search for victims finds the same jobs with and without a look at the nodes, and releases no others."""

from __future__ import annotations

import random

import pytest

from builders import job
from rota.core.engine.draft import Draft
from rota.core.messages.reasons import Reason
from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import DeviceType, Job, JobId, NodeId, Role
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.mechanisms.ordering.lanes import Entry, Holders
from rota.mechanisms.ordering.needs import Need
from rota.mechanisms.ordering.victim_search import Candidates, RoomCheck, VictimSearch
from rota.placement import style
from rota.tenancy.open import OpenAllocator


def _full(seed: int) -> tuple[Draft, Holders, list[Entry], LiveJob]:
    """A cluster full of jobs of different sizes, the holders from the last in order on, and a job that waits."""
    rng = random.Random(seed)
    nodes = tuple(
        Node(id=NodeId(f"n{number}"), device_type=DeviceType("gpu"), devices=rng.choice((2, 4)), cpu_milli=16_000)
        for number in range(5)
    )
    draft = Draft(Inventory(Cluster(nodes=nodes)), OpenAllocator(style("any")), 0.0)
    holders, entries = Holders(), []
    for seq in range(60):
        role = Role(device_milli=rng.choice((300, 500, 1000, 1000, 2000)), cpu_milli=rng.choice((0, 1000, 3000)))
        live = LiveJob(Job(id=JobId(str(seq)), roles=(role,)), seq, 0.0, 1.0)
        answer = draft.offer(live)
        if isinstance(answer, tuple):
            draft.assign_offered(live, answer)
            entry: Entry = ((rng.random(), float(seq)), live)
            holders.add(entry, 0.0)
            entries.append(entry)
    entries.sort(key=lambda entry: entry[0], reverse=True)
    wanted = Role(device_milli=rng.choice((700, 1000, 2000, 3000, 4000)), cpu_milli=rng.choice((0, 4000, 12_000)))
    return draft, holders, entries, LiveJob(Job(id=JobId("wanted"), roles=(wanted,)), 99, 0.0, 1.0)


def _search(
    seed: int, *, looks: bool, names: bool = False
) -> tuple[bool, list[JobId], object, list[JobId], list[JobId]]:
    draft, holders, entries, live = _full(seed)
    draft.touched.clear()
    if not isinstance(draft.offer(live), Reason):  # the scheduler looks for victims only after an offer in vain
        return False, [], (), [], []
    room = RoomCheck(Need(live.job.roles[0]), holders, draft.inventory) if looks else None
    missing = draft.allocator.shortage.milli(live, draft.inventory)
    candidates = Candidates(draft, live, holders, (-1.0, -1.0))
    search = VictimSearch(draft, live, candidates, room, may_name=names)

    found = search.run(missing)

    victims = [entry[1].job.id for entry in search.victims] if found else []
    released = [entry[1].job.id for entry in entries if entry[1].placement is None]
    return found, victims, search.placement, released, [other.job.id for other in draft.touched]


def test_looking_at_nodes_changes_nothing_about_what_is_found() -> None:
    found = 0
    for seed in range(150):
        looked, offered = _search(seed, looks=True), _search(seed, looks=False)

        assert looked == offered
        assert looked[1] == looked[3]
        found += looked[0]
    assert 50 < found < 150


def test_victims_that_need_not_leave_are_named_and_keep_what_they_hold() -> None:
    kept = 0
    for seed in range(150):
        found, victims, placement, released, touched = _search(seed, looks=True, names=True)
        everyone = _search(seed, looks=True)

        assert (found, victims, placement, touched) == (everyone[0], everyone[1], everyone[2], everyone[4])
        assert set(released) <= set(victims)
        kept += len(victims) - len(released)
    assert kept > 100


def test_the_fewest_jobs_leave() -> None:
    for seed in range(40):
        found, victims, _, _, _ = _search(seed, looks=True)
        if not found or len(victims) < 2:
            continue
        draft, _, entries, live = _full(seed)
        for _, holder in entries[: len(victims) - 1]:
            draft.release(holder)

        assert not isinstance(draft.offer(live), tuple)


def test_a_node_that_does_not_count_memory_has_enough() -> None:
    inventory = Inventory(Cluster.uniform(("gpu", 4, 2)))
    need = Need(Role(device_milli=2000, memory_bytes=2**40))

    assert need.nodes(inventory) == 0b11


@pytest.mark.parametrize("gpus", [3, 4])
def test_nodes_that_are_too_small_are_left_out(gpus: int) -> None:
    inventory = Inventory(Cluster.uniform(("gpu", 4, 2)))

    assert Need(job("j", workers=1, gpus=gpus).roles[0]).nodes(inventory) == 0
