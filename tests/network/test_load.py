"""Jobs that share links: the algebra of two jobs, mechanisms between jobs, and what a placement costs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.errors import RotaError
from rota.core.model.cluster import Node
from rota.core.model.job import Job, JobId, NodeId, Role
from rota.core.model.placement import Placement, Slot
from rota.network.cassini import JobCircle, affinity_shifts, best_shifts, score_of
from rota.network.crux import compressed
from rota.network.demand import IterationDemand
from rota.network.fabrics import fat_tree
from rota.network.load import NetworkLoad
from rota.network.model import LinkMechanism, MemoryInterference, NetworkModel, PhaseAlignment
from rota.network.phases import PhasedJob, run_phases
from rota.network.routing import Router
from rota.network.topology import NetworkTopology, duplex
from rota.network.traffic import RankPlace, iteration_s, traffic_of
from rota.network.turns import common_periods, phased, settled

RATE = 1e9
ONE_LINK = NetworkTopology(nodes=("n1", "n2"), links=duplex("n1", "n2", RATE))
ACROSS: Placement = (Slot(0, 1), Slot(1, 1))


def nodes(count: int, devices: int = 1) -> list[Node]:
    return [Node(id=NodeId(f"n{number}"), devices=devices) for number in range(1, count + 1)]


def job(name: str, *, compute_s: float, size: float, tasks: int = 2) -> Job:
    labels = (("compute_s", str(compute_s)), ("comm_bytes", str(size)))
    return Job(id=JobId(name), roles=(Role(count=tasks),), labels=labels)


def two_jobs(model: NetworkModel, period_s: float, share: float) -> list[float]:
    load = NetworkLoad(model, nodes(2))
    for name in "ab":
        load.enter(job(name, compute_s=(1 - share) * period_s, size=share * period_s * RATE), ACROSS)
    return [load.iteration_s(JobId(name)) or math.nan for name in "ab"]


@settings(max_examples=40, deadline=None)
@given(period_s=st.floats(0.01, 100), share=st.floats(0.01, 0.5))
def test_two_jobs_on_a_link_follow_the_algebra_of_cassini(period_s: float, share: float) -> None:
    aligned = NetworkModel(topology=ONE_LINK)

    assert two_jobs(aligned, period_s, share) == pytest.approx([period_s * (1 + share)] * 2)
    for mechanism in (LinkMechanism.CASSINI, LinkMechanism.CRUX):
        shifted = two_jobs(replace(aligned, mechanism=mechanism), period_s, share)
        assert shifted == pytest.approx([period_s] * 2, rel=5e-3)
    by_chance = two_jobs(replace(aligned, alignment=PhaseAlignment.RANDOM), period_s, share)
    assert period_s < by_chance[0] < period_s * (1 + share)


@settings(max_examples=40, deadline=None)
@given(share=st.floats(0.01, 0.5), period_s=st.floats(0.1, 10))
def test_two_jobs_of_half_or_less_have_score_one(share: float, period_s: float) -> None:
    circle = JobCircle(period_s=period_s, start_s=(1 - share) * period_s, length_s=share * period_s, demand=RATE)

    found = best_shifts([circle, circle], RATE)

    assert found.score == pytest.approx(1.0, abs=2e-3)
    assert score_of([circle, circle], RATE, [0.0, period_s / 2]) == pytest.approx(1.0, abs=1e-9)
    assert score_of([circle, circle], RATE) == pytest.approx(1 - share, abs=3e-3)


@given(share=st.floats(0.55, 0.95))
@settings(max_examples=20, deadline=None)
def test_two_jobs_of_more_than_half_cannot_have_score_one(share: float) -> None:
    circle = JobCircle(period_s=1.0, start_s=0.0, length_s=share, demand=RATE)

    assert best_shifts([circle, circle], RATE).score == pytest.approx(2 - 2 * share, abs=5e-3)


def test_shifts_of_two_links_keep_each_links_best_relative_shift() -> None:
    third = JobCircle(period_s=3.0, start_s=2.0, length_s=1.0, demand=RATE)
    found = affinity_shifts([third] * 3, {0: {0: RATE, 1: RATE}, 1: {1: RATE, 2: RATE}}, {0: RATE, 1: RATE})

    assert found.is_loop_free
    assert found.score == pytest.approx(1.0, abs=2e-3)
    for one, other in ((0, 1), (1, 2)):
        pair = [found.shifts_s[one], found.shifts_s[other]]
        assert score_of([third, third], RATE, pair) == pytest.approx(1.0, abs=5e-3)


def test_a_loop_of_links_is_reported() -> None:
    third = JobCircle(period_s=3.0, start_s=2.0, length_s=1.0, demand=RATE)
    links = {0: {0: RATE, 1: RATE}, 1: {1: RATE, 2: RATE}, 2: {0: RATE, 2: RATE}}

    assert not affinity_shifts([third] * 3, links, dict.fromkeys(links, RATE)).is_loop_free


def test_offset_iterations_stay_offset_under_fair_sharing() -> None:
    """Two jobs that overlap by part of their sending lose exactly that part, in every iteration."""
    shared = PhasedJob(quiet_s=0.6, bytes=0.4, loads={0: 1.0}, top_level=1.0)

    found = run_phases([shared, replace(shared, shift_s=0.1)], np.array([1.0]))

    assert found.iteration_s == pytest.approx([1.3, 1.3])


def test_priorities_separate_jobs_that_start_together() -> None:
    low = PhasedJob(quiet_s=0.6, bytes=0.4, loads={0: 1.0}, top_level=1.0)

    found = run_phases([replace(low, priority=1), low], np.array([1.0]))

    assert found.iteration_s == pytest.approx([1.0, 1.0])


def test_a_job_is_slower_where_the_tree_is_oversubscribed() -> None:
    topology = fat_tree([f"n{n}" for n in range(1, 9)], per_leaf=4, spines=2, link_bytes_per_s=RATE, oversubscription=8)
    load = NetworkLoad(NetworkModel(topology=topology), nodes(8))
    near, far = job("near", compute_s=0.5, size=5e8), job("far", compute_s=0.5, size=5e8)
    load.enter(near, (Slot(0, 1), Slot(1, 1)))
    load.enter(far, (Slot(2, 1), Slot(4, 1)))

    assert load.speed(near.id) == pytest.approx(1.0)
    assert load.speed(far.id) == pytest.approx(1.0 / (0.5 + 0.5 * 4))
    load.leave(far.id)
    load.enter(far, (Slot(2, 1), Slot(3, 1)))
    assert load.speed(far.id) == pytest.approx(1.0)


def test_only_jobs_whose_speed_changed_are_told() -> None:
    load = NetworkLoad(NetworkModel(topology=ONE_LINK), nodes(2))
    for name in "ab":
        load.enter(job(name, compute_s=0.5, size=5e8), ACROSS)
        load.speed(JobId(name))

    assert load.pop_affected() == ["a"]
    load.speed(JobId("a"))
    assert load.pop_affected() == []
    load.leave(JobId("b"))
    assert load.pop_affected() == ["a"]


def test_jobs_of_unknown_models_are_counted_and_not_slowed() -> None:
    load = NetworkLoad(NetworkModel(topology=ONE_LINK), nodes(2))
    load.enter(Job(id=JobId("x"), roles=(Role(count=2),)), ACROSS)

    assert load.speed(JobId("x")) == 1.0
    assert load.unknown_jobs == 1


@given(comm_s=st.floats(0, 5), overlap=st.floats(0, 1), pressure=st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_memory_pressure_costs_both_sides(comm_s: float, overlap: float, pressure: float) -> None:
    calm = IterationDemand(compute_s=1.0, bytes=1.0, overlap=overlap)
    by = MemoryInterference()

    without = iteration_s(calm, comm_s, by)
    found = iteration_s(replace(calm, memory_pressure=pressure), comm_s, by)

    assert without == pytest.approx(1.0 + max(comm_s - overlap, 0.0))
    assert without - 1e-12 <= found <= 1.0 + comm_s + by.on_computing * pressure + 1e-9


def test_intensities_are_compressed_in_order() -> None:
    found = compressed([5.0, 1.0, 9.0, 3.0], 2)

    assert found == [1, 0, 1, 0]
    assert compressed([5.0, 1.0, 9.0, 3.0], 8) == [2, 0, 3, 1]


def test_labels_without_numbers_are_refused() -> None:
    load = NetworkLoad(NetworkModel(topology=ONE_LINK), nodes(2))
    wrong = Job(id=JobId("w"), roles=(Role(count=2),), labels=(("compute_s", "soon"), ("comm_bytes", "1")))

    with pytest.raises(RotaError, match="job w: its labels"):
        load.enter(wrong, ACROSS)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), mechanism=st.sampled_from([LinkMechanism.CASSINI, LinkMechanism.FAIR]))
def test_no_job_is_slower_than_when_all_send_at_the_same_time(seed: int, mechanism: LinkMechanism) -> None:
    """Sending at the same time as all others on a link is the worst case under fair sharing, and alone is the best.

    Over several links it need not be: a job that pauses may free another, which then takes more of a third one's link.
    """
    rng = np.random.default_rng(seed)
    worst = NetworkModel(topology=ONE_LINK, seed=seed)
    other = replace(worst, mechanism=mechanism, alignment=PhaseAlignment.RANDOM)
    loads = [NetworkLoad(model, nodes(2)) for model in (worst, other)]
    for number in range(int(rng.integers(2, 7))):
        made = job(str(number), compute_s=float(rng.uniform(0.1, 1)), size=float(rng.uniform(1e8, 1e9)))
        for load in loads:
            load.enter(made, ACROSS)

    for number in range(2):
        slow, fast = (load.speed(JobId(str(number))) for load in loads)
        assert slow * (1 - 1e-6) <= fast <= 1.0 + 1e-6


@settings(max_examples=40, deadline=None)
@given(alone_s=st.lists(st.floats(0.05, 5), min_size=1, max_size=6))
def test_common_periods_divide_one_length_and_cost_little(alone_s: list[float]) -> None:
    periods = common_periods(alone_s)

    kept = [(period_s, own_s) for period_s, own_s in zip(periods, alone_s, strict=True) if period_s]
    assert kept  # the longest always keeps its turn
    longest = max(period_s for period_s, _ in kept)
    for period_s, own_s in kept:
        assert own_s * (1 - 1e-9) <= period_s <= own_s * 1.05 * (1 + 1e-6)
        assert longest / period_s == pytest.approx(round(longest / period_s), rel=1e-6)


def test_jobs_that_keep_turns_do_not_drift_into_each_other() -> None:
    capacity = np.array([RATE])
    jobs = [
        PhasedJob(quiet_s=0.6, bytes=0.4e9, loads={0: 1.0}, top_level=RATE, shift_s=shift_s, period_s=period_s)
        for shift_s, period_s in ((0.0, 1.0), (0.5, 1.0))
    ]
    late = replace(jobs[1], quiet_s=0.57)  # shorter than its period: without turns it would drift

    assert run_phases([jobs[0], late], capacity).iteration_s == pytest.approx((1.0, 1.0))
    drifting = [replace(job, period_s=0.0) for job in (jobs[0], late)]
    assert max(run_phases(drifting, capacity, iterations=60).iteration_s) > 1.0


def test_cassini_keeps_turns_where_that_is_better() -> None:
    model = NetworkModel(topology=ONE_LINK, mechanism=LinkMechanism.CASSINI)
    router = Router(ONE_LINK)
    ranks = [RankPlace(node=0), RankPlace(node=1)]
    traffics = [
        traffic_of(IterationDemand(compute_s=compute_s, bytes=0.45e9), ranks, model, router, 0)
        for compute_s in (0.55, 0.53)
    ]

    times = settled(traffics, model)
    drifting = run_phases(phased(traffics, model), ONE_LINK.capacity, iterations=40).iteration_s

    assert sum(times) <= sum(drifting) * (1 + 1e-9)
    assert max(times) <= 1.05
