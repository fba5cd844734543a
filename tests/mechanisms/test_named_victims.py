"""Named victims: counted as free exactly as if they were released, and released when a job could use what they hold."""

from __future__ import annotations

import random

import pytest

from rota.core.engine.draft import Draft
from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import DeviceType, Job, JobId, NodeId, Role
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.mechanisms.ordering.index import Index, IndexEntry
from rota.mechanisms.ordering.lanes import Entry
from rota.mechanisms.ordering.named_victims import NamedVictims
from rota.mechanisms.ordering.rule import SimpleRule, Turn
from rota.placement import style
from rota.tenancy.open import OpenAllocator


def _full(seed: int, slope: float = 0.0) -> tuple[Draft, Index, list[Entry]]:
    """A draft on full nodes, and the holders that come last in order, the last first."""
    rng = random.Random(seed)
    nodes = tuple(
        Node(id=NodeId(f"n{number}"), device_type=DeviceType("ab"[number % 2]), devices=4, cpu_milli=32_000)
        for number in range(6)
    )
    allocator = OpenAllocator(style("any"))
    draft = Draft(Inventory(Cluster(nodes=nodes)), allocator, 0.0)
    index = Index(SimpleRule(of=lambda job, now_s: Turn((float(job.seq),)), preempts=True), allocator)
    entries: list[Entry] = []
    for seq in range(60):
        milli = rng.choice((200, 300, 500, 500, 1000, 2000))
        role = Role(device_milli=milli, count=rng.choice((1, 1, 1, 3)), cpu_milli=rng.choice((0, 1000)))
        live = LiveJob(Job(id=JobId(str(seq)), roles=(role,)), seq, 0.0, 1.0)
        answer = draft.offer(live)
        if isinstance(answer, tuple):
            draft.assign_offered(live, answer)
            entry: Entry = ((float(seq), float(seq)), live)
            index.places[live] = IndexEntry(entry, slope, None, 1e9)
            index.holders.add(entry, slope)
            entries.append(entry)
    entries.reverse()
    return draft, index, entries[: rng.randint(1, len(entries))]


def _counts(draft: Draft) -> list[tuple[int, int]]:
    return [(pool.free, pool.partial_milli) for pool in draft.inventory.pools]


@pytest.mark.parametrize("seed", range(40))
def test_what_they_hold_is_counted_as_if_they_were_released(seed: int) -> None:
    draft, index, victims = _full(seed)
    before, mark = _counts(draft), draft.mark()
    for _, live in victims:
        draft.release(live)
    released = _counts(draft)
    draft.undo(mark)
    named = NamedVictims(draft, index)

    named.name(victims)

    assert _counts(draft) == released != before
    for _, live in random.Random(seed).sample(victims, len(victims) // 2):
        assert named.take_back(live)
        assert not named.take_back(live)
    named.forget()
    assert _counts(draft) == before
    assert all(live.placement is not None for _, live in victims)


@pytest.mark.parametrize("seed", range(40))
def test_a_job_gets_what_it_would_get_if_all_were_released(seed: int) -> None:
    answers = []
    for releases in (False, True):
        draft, index, victims = _full(seed)
        key, displaced = victims.pop()  # it is first among them in order, and lost its place
        draft.release(displaced)
        named = NamedVictims(draft, index)
        named.name([entry for entry in victims if not _share_a_node(index, entry[1], displaced)])
        if releases:
            named.release_all()
        named.release_for(displaced, key)
        answers.append((draft.offer(displaced), _counts(draft)))

    assert answers[0] == answers[1]


def _share_a_node(index: Index, one: LiveJob, other: LiveJob) -> bool:
    return bool(index.holders.held(one).nodes & index.holders.held(other).nodes)


@pytest.mark.parametrize(
    ("slope", "distance", "preempts", "are_released"),
    [(0.0, 0.0, True, False), (-1.0, 1.0, True, False), (0.0, 1.0, False, True), (-1.0, 0.0, True, True)],
    ids=["equal keys at rest", "apart", "takes only what is free", "rounding may decide"],
)
def test_they_are_released_before_a_job_that_looking_at_nodes_does_not_tell_about(
    slope: float, distance: float, preempts: bool, are_released: bool
) -> None:
    draft, index, victims = _full(1, slope)
    named = NamedVictims(draft, index)
    named.name(victims)
    first = victims[-1][0][0]

    named.before(LiveJob(Job(id=JobId("x"), preempts=preempts), 99, 0.0, 1.0), (first - distance, 0.0))

    assert all((live.placement is None) is are_released for _, live in victims)
    named.forget()
