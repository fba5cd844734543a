"""Parameters of the family: what is wrong is refused when it is read, by name."""

from __future__ import annotations

import pytest

from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.placement import style
from rota.policies import BUILT_IN, find_policy
from rota.tenancy import allocator

COST = "gavel/max_sum_throughput_normalized_by_cost_perf"


@pytest.mark.parametrize(
    ("policy", "options", "message"),
    [
        (COST, "prices=v100:abc", "the price of 'v100' is 'abc'; it must be a number above 0"),
        (COST, "prices=v100:2.5/k80", "the price of 'k80' is ''; it must be a number above 0"),
        (COST, "prices=v100:-1", "the price of 'v100' is '-1'"),
        ("gavel/hierarchical", "weights=a:nan", "entity 'a': its weight is 'nan'; it must be a number above 0"),
        ("gavel/hierarchical", "entities=a:lifo", "entity 'a': its rule is 'lifo'; it must be fairness or fifo"),
        ("gavel/isolated", "round_s=0", "round_s is 0; it must be a finite number above 0, or adaptive"),
        ("gavel/isolated", "round_s=inf", "round_s is inf; it must be a finite number above 0, or adaptive"),
        ("gavel/isolated", "round_s=soon", "round_s"),
        ("gavel/isolated", "compat=themis", "compat"),
    ],
)
def test_what_is_wrong_is_refused_when_it_is_read(policy: str, options: str, message: str) -> None:
    declared, _ = find_policy(policy)

    with pytest.raises(RotaError, match=message):
        declared.read(options)


@pytest.mark.parametrize(
    ("policy", "starvation"),
    [
        ("max_sum_throughput_perf", "possible"),
        ("max_sum_throughput_normalized_by_cost_packed_SLOs", "possible"),
        ("shortest_job_first_perf", "possible"),
        ("allox", "possible"),
        ("max_min_fairness_perf", "no"),
    ],
)
def test_policies_that_favour_some_jobs_may_starve_others(policy: str, starvation: str) -> None:
    assert find_policy(f"gavel/{policy}")[0].traits.starvation == starvation


def test_policies_say_whether_they_pack() -> None:
    """Every rule that may put two jobs on the same devices is declared to do so, and no other."""
    family = [find_policy(name)[0] for name in BUILT_IN if name.startswith("gavel/")]
    made = {
        each.name: each.build("", allocator("none", style("any"), Cluster.uniform(("gpu", 1, 1)))) for each in family
    }

    assert {each.name for each in family if "packed" in each.traits.placement} == {
        name
        for name, policy in made.items()
        if policy._rule.packs  # type: ignore[attr-defined]
    }


def test_prices_that_are_given_replace_the_built_in_ones() -> None:
    params = find_policy(COST)[0].read("prices=v100:1.5/tpu:4")

    assert [params.price(kind) for kind in ("v100", "tpu", "p100", "unheard-of")] == [1.5, 4.0, 1.46, 1.0]


def test_entities_that_are_named_differ_from_the_rest() -> None:
    params = find_policy("gavel/hierarchical")[0].read("entities=a:fifo,weights=a:2")

    assert [params.rule_of(entity).value for entity in "ab"] == ["fifo", "fairness"]
    assert [params.weight_of(entity) for entity in "ab"] == [2.0, 1.0]
