"""Parameters of the family: what is wrong is refused when it is read, by name."""

from __future__ import annotations

import pytest

from rota.core.errors import RotaError
from rota.policies import find_policy

COST = "gavel/max_sum_throughput_normalized_by_cost_perf"


@pytest.mark.parametrize(
    ("policy", "options", "message"),
    [
        (COST, "prices=v100:abc", "the price of 'v100' is 'abc'; it must be a number above 0"),
        (COST, "prices=v100:2.5/k80", "the price of 'k80' is ''; it must be a number above 0"),
        (COST, "prices=v100:-1", "the price of 'v100' is '-1'"),
        ("gavel/hierarchical", "weights=a:nan", "entity 'a': its weight is 'nan'; it must be a number above 0"),
        ("gavel/hierarchical", "entities=a:lifo", "entity 'a': its rule is 'lifo'; it must be fairness or fifo"),
        ("gavel/isolated", "round_s=0", "round_s is 0; it must be above 0"),
        ("gavel/isolated", "round_s=inf", "round_s is inf"),
        ("gavel/isolated", "round_s=soon", "round_s"),
        ("gavel/isolated", "compat=themis", "compat"),
    ],
)
def test_what_is_wrong_is_refused_when_it_is_read(policy: str, options: str, message: str) -> None:
    declared, _ = find_policy(policy)

    with pytest.raises(RotaError, match=message):
        declared.read(options)


def test_prices_that_are_given_replace_the_built_in_ones() -> None:
    params = find_policy(COST)[0].read("prices=v100:1.5/tpu:4")

    assert [params.price(kind) for kind in ("v100", "tpu", "p100", "unheard-of")] == [1.5, 4.0, 1.46, 1.0]


def test_entities_that_are_named_differ_from_the_rest() -> None:
    params = find_policy("gavel/hierarchical")[0].read("entities=a:fifo,weights=a:2")

    assert [params.rule_of(entity).value for entity in "ab"] == ["fifo", "fairness"]
    assert [params.weight_of(entity) for entity in "ab"] == [2.0, 1.0]
