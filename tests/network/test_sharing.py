"""Max-min fair sharing, against an obvious water-filling."""

from __future__ import annotations

import time

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.network.sharing import LinkUse, max_min

Uses = list[dict[int, float]]


def slow_max_min(uses: Uses, capacity: list[float], caps: list[float]) -> list[float]:
    """Raise all levels together until a link is full or a cap is reached; those held there stop rising."""
    levels = [0.0] * len(uses)
    rising = {number for number, use in enumerate(uses) if use or caps[number] < np.inf}
    while rising:
        steps = [caps[number] - levels[number] for number in rising]
        for link, most in enumerate(capacity):
            spent = sum(uses[n].get(link, 0.0) * levels[n] for n in range(len(uses)))
            weight = sum(uses[n].get(link, 0.0) for n in rising)
            if weight:
                steps.append(max(most - spent, 0.0) / weight)
        step = min(steps)
        for number in rising:
            levels[number] += step
        held = set()
        for link, most in enumerate(capacity):
            if sum(uses[n].get(link, 0.0) * levels[n] for n in range(len(uses))) >= most * (1 - 1e-9):
                held |= {n for n in rising if uses[n].get(link)}
        held |= {n for n in rising if levels[n] >= caps[n] * (1 - 1e-12)}
        rising -= held
    return [level if uses[n] or caps[n] < np.inf else np.inf for n, level in enumerate(levels)]


@st.composite
def networks(draw: st.DrawFn) -> tuple[Uses, list[float], list[float]]:
    links = draw(st.integers(1, 6))
    capacity = draw(st.lists(st.floats(0.5, 50), min_size=links, max_size=links))
    load = st.sampled_from([0.25, 1.0, 1.0, 2.0, 3.5])
    uses = draw(st.lists(st.dictionaries(st.integers(0, links - 1), load, max_size=links), min_size=1, max_size=8))
    cap = st.one_of(st.just(np.inf), st.floats(0.1, 20))
    caps = draw(st.lists(cap, min_size=len(uses), max_size=len(uses)))
    return uses, capacity, caps


@settings(max_examples=150, deadline=None)
@given(networks())
def test_shares_are_those_of_water_filling(network: tuple[Uses, list[float], list[float]]) -> None:
    uses, capacity, caps = network

    found = max_min(LinkUse.of(uses), np.array(capacity), np.array(caps))

    np.testing.assert_allclose(found, slow_max_min(uses, capacity, caps), rtol=1e-6)


@settings(max_examples=60, deadline=None)
@given(networks(), st.randoms(use_true_random=False))
def test_the_order_of_flows_does_not_matter(network: tuple[Uses, list[float], list[float]], rng: object) -> None:
    uses, capacity, caps = network
    order = list(range(len(uses)))
    rng.shuffle(order)  # type: ignore[attr-defined]

    straight = max_min(LinkUse.of(uses), np.array(capacity), np.array(caps))
    shuffled = max_min(LinkUse.of([uses[n] for n in order]), np.array(capacity), np.array([caps[n] for n in order]))

    np.testing.assert_allclose(shuffled, straight[order], rtol=1e-9)


@settings(max_examples=60, deadline=None)
@given(networks(), st.lists(st.integers(0, 2), min_size=8, max_size=8))
def test_higher_priority_is_served_as_if_it_were_alone(
    network: tuple[Uses, list[float], list[float]], ranks: list[int]
) -> None:
    uses, capacity, caps = network
    priority = np.array(ranks[: len(uses)])
    top = np.flatnonzero(priority == priority.max())

    found = max_min(LinkUse.of(uses), np.array(capacity), np.array(caps), priority)
    alone = max_min(LinkUse.of([uses[n] for n in top]), np.array(capacity), np.array(caps)[top])

    np.testing.assert_allclose(found[top], alone, rtol=1e-9)
    finite = np.isfinite(found)
    for link, most in enumerate(capacity):
        spent = sum(uses[n].get(link, 0.0) * found[n] for n in np.flatnonzero(finite))
        assert spent <= most * (1 + 1e-6)


def test_two_flows_on_one_link_have_half_each() -> None:
    assert max_min(LinkUse.of([{0: 1.0}, {0: 1.0}]), np.array([10.0])).tolist() == [5.0, 5.0]


def test_what_one_flow_cannot_use_goes_to_the_other() -> None:
    found = max_min(LinkUse.of([{0: 1.0, 1: 1.0}, {0: 1.0}]), np.array([10.0, 2.0]))

    assert found.tolist() == [2.0, 8.0]


def test_a_thousand_jobs_are_shared_in_milliseconds() -> None:
    rng = np.random.default_rng(0)
    uses = [dict.fromkeys(rng.integers(0, 2500, 20).tolist(), 1.0) for _ in range(1000)]
    use, capacity = LinkUse.of(uses), np.full(2500, 1e9)
    max_min(use, capacity)

    began = time.process_time()
    for _ in range(5):
        max_min(use, capacity)

    assert (time.process_time() - began) / 5 < 0.1
