"""Part of the profiles hidden: what is told is complete, honest about its error, and never claims the impossible."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.errors import RotaError
from rota.core.model.job import DeviceType
from rota.perf.profiles.matrix_completion import Fill
from rota.perf.profiles.online_estimates import LearningSpeeds
from rota.perf.profiles.partial_profiles import EstimateSpec, KnownSpeeds, estimate, gaps_of, hide
from rota.perf.profiles.speed_table import Profiles

FAST, SLOW = DeviceType("fast"), DeviceType("slow")
MODELS = tuple("abcdefgh")


def table(*, forbidden: frozenset[str] = frozenset()) -> Profiles:
    """Eight models on two types with one or two devices; `forbidden` ones do not fit on the slow type."""
    speeds, pairs = {}, {}
    for at, model in enumerate(MODELS, start=1):
        for devices in (1, 2):
            speeds[(FAST, model, devices)] = 10.0 * at * devices**0.9
            speeds[(SLOW, model, devices)] = 0.0 if model in forbidden else (2.0 + 0.1 * at) * at * devices**0.8
    for (kind, model, devices), own in speeds.items():
        for other in MODELS:
            both = min(own, speeds[(kind, other, devices)]) > 0
            rates = (0.6 * own, 0.5 * speeds[(kind, other, devices)]) if both else (0.0, 0.0)
            pairs[(kind, model, other, devices)] = rates
    return Profiles(steps_per_s=speeds, pairs=pairs, source="a test")


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(
    part=st.floats(0, 1),
    fill=st.sampled_from(Fill),
    seed=st.integers(0, 50),
    forbidden=st.frozensets(st.sampled_from(MODELS)),
)
def test_told_is_complete_and_forbidden_stays_forbidden(
    part: float, fill: Fill, seed: int, forbidden: frozenset[str]
) -> None:
    truth = table(forbidden=forbidden)

    told = EstimateSpec(known=part, fill=fill, seed=seed).estimate(truth)

    assert told.profiles.steps_per_s.keys() == truth.steps_per_s.keys()
    assert told.profiles.pairs.keys() == truth.pairs.keys()
    for key, rate in truth.steps_per_s.items():
        assert (told.profiles.steps_per_s[key] > 0) == (rate > 0)
        assert told.profiles.steps_per_s[key] < float("inf")
    for pair, rates in truth.pairs.items():
        assert (min(told.profiles.pairs[pair]) > 0) == (min(rates) > 0)


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(part=st.floats(0, 1), seed=st.integers(0, 50))
def test_same_seed_tells_the_same(part: float, seed: int) -> None:
    spec = EstimateSpec(known=part, seed=seed)

    assert spec.estimate(table()) == spec.estimate(table())


@pytest.mark.slow
def test_what_is_known_is_told_as_it_is() -> None:
    truth = table()

    known = hide(truth, 0.5, 3)
    told = estimate(known, Fill.COMPLETION, 3)

    assert len(known.speeds) == len(truth.steps_per_s) / 2
    assert known.profiles.steps_per_s.items() <= truth.steps_per_s.items()
    assert known.profiles.steps_per_s.items() <= told.profiles.steps_per_s.items()
    assert not known.profiles.steps_per_s.keys() & known.speeds


@pytest.mark.slow
def test_hidden_figures_do_not_reach_the_estimate() -> None:
    truth = table()
    known = hide(truth, 0.5, 0)
    other = Profiles(
        steps_per_s={key: 777.0 if key in known.speeds else rate for key, rate in truth.steps_per_s.items()},
        pairs={key: (7.0, 7.0) if key in known.pairs else rates for key, rates in truth.pairs.items()},
        source="a test",
    )

    assert EstimateSpec(known=0.5).estimate(other) == EstimateSpec(known=0.5).estimate(truth)


def test_pair_is_hidden_from_both_sides() -> None:
    known = hide(table(), 0.3, 1)

    assert {(kind, other, one, devices) for kind, one, other, devices in known.pairs} == known.pairs


def test_sentence_names_counts_method_and_error() -> None:
    told = EstimateSpec(known=0.5, fill=Fill.NEAREST).estimate(table())

    assert told.sentence().startswith("16 of 32 speeds known, the rest estimated (nearest); held-out error ")
    assert "; 72 of 144 pairs known, the rest estimated (nearest); held-out error " in told.sentence()


def test_gaps_are_what_jobs_want_and_the_table_lacks() -> None:
    truth = table(forbidden=frozenset("h"))
    poorer = Profiles(
        steps_per_s={key: rate for key, rate in truth.steps_per_s.items() if key != (SLOW, "a", 1)},
        pairs={key: rates for key, rates in truth.pairs.items() if key != (SLOW, "b", "c", 1)},
        source="a test",
    )

    known = gaps_of(poorer, {("a", 1), ("b", 1), ("c", 1), ("h", 1)}, [FAST, SLOW])

    assert known == KnownSpeeds(
        profiles=poorer, speeds=frozenset({(SLOW, "a", 1)}), pairs=frozenset({(SLOW, "b", "c", 1)})
    )


@pytest.mark.parametrize("part", [-0.1, 1.1, float("nan")])
def test_part_outside_of_0_to_1_is_refused(part: float) -> None:
    with pytest.raises(RotaError, match="it must be from 0 to 1"):
        EstimateSpec(known=part)


@pytest.mark.slow
def test_observation_replaces_a_bad_guess_and_hardly_moves_what_was_known() -> None:
    told = EstimateSpec(known=0.4, seed=2).estimate(table())
    speeds = LearningSpeeds(told)
    guessed = min(told.known.speeds)
    given_ = min(told.known.profiles.steps_per_s)
    before, was = speeds.rate(*guessed), speeds.rate(*given_)
    assert before is not None
    assert was is not None

    assert speeds.observe(*guessed, 2 * before)
    assert speeds.observe(*given_, 2 * was)

    assert speeds.rate(*guessed) == pytest.approx(2 * before, rel=0.2)
    assert speeds.rate(*given_) == pytest.approx(was, rel=0.15)
    for _ in range(50):
        speeds.observe(*given_, 2 * was)
    assert speeds.rate(*given_) == pytest.approx(2 * was, rel=0.1)


@pytest.mark.slow
def test_seeing_what_was_believed_changes_nothing() -> None:
    told = EstimateSpec(known=0.4).estimate(table())
    speeds = LearningSpeeds(told)

    assert not any(speeds.observe(*key, rate) for key, rate in told.profiles.steps_per_s.items())


@pytest.mark.slow
def test_observed_pair_is_its_own_figure() -> None:
    told = EstimateSpec(known=0.4).estimate(table())
    speeds = LearningSpeeds(told)
    kind, one, other, devices = min(told.known.pairs)
    alone = speeds.rate(kind, one, devices)

    before = speeds.beside(kind, one, other, devices)
    assert before is not None

    assert speeds.observe(kind, one, devices, before / 2, beside=other)
    for _ in range(50):
        speeds.observe(kind, one, devices, before / 2, beside=other)

    assert speeds.beside(kind, one, other, devices) == pytest.approx(before / 2, rel=0.05)
    assert speeds.rate(kind, one, devices) == alone


@pytest.mark.slow
def test_what_is_seen_mends_other_guesses() -> None:
    """With all of the fast type seen, what the slow one was guessed at moves towards the truth."""
    truth = table()
    told = EstimateSpec(known=0.2, seed=4).estimate(truth)
    speeds = LearningSpeeds(told)
    unseen = sorted(key for key in told.known.speeds if key[0] == SLOW)

    for key in sorted(told.known.speeds):
        if key[0] == FAST:
            speeds.observe(*key, truth.steps_per_s[key])
    assert speeds.refit()

    def off(rate: float | None, key: tuple[DeviceType, str, int]) -> float:
        assert rate is not None
        return abs(rate / truth.steps_per_s[key] - 1)

    before = sum(off(told.profiles.steps_per_s[key], key) for key in unseen)
    assert sum(off(speeds.rate(*key), key) for key in unseen) < 0.5 * before
    assert not speeds.refit()


@pytest.mark.slow
def test_speed_that_is_impossible_is_not_learnt() -> None:
    told = EstimateSpec(known=0.5).estimate(table(forbidden=frozenset("a")))
    speeds = LearningSpeeds(told)

    assert not speeds.observe(SLOW, "a", 1, 5.0)
    assert not speeds.observe(FAST, "a", 1, 0.0)
    assert not speeds.observe(FAST, "nobody", 1, 5.0)
    assert speeds.rate(SLOW, "a", 1) == 0.0


@pytest.mark.slow
def test_memory_takes_up_where_it_was_left() -> None:
    truth = table()
    told = EstimateSpec(known=0.3, seed=1).estimate(truth)
    one, other = LearningSpeeds(told), LearningSpeeds(told)
    seen = sorted(told.known.speeds)
    for key in seen[:9]:
        one.observe(*key, truth.steps_per_s[key])
    one.observe(FAST, "a", 1, 2.0, beside="b")
    assert one.refit()
    one.observe(*seen[10], 1.0)

    other.recall(json.loads(json.dumps(one.memory)))

    assert other.memory == one.memory
    assert all(other.rate(*key) == one.rate(*key) for key in truth.steps_per_s)
    assert all(other.beside(*key) == one.beside(*key) for key in truth.pairs)
