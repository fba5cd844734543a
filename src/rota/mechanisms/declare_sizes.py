"""How policies that choose sizes introduce themselves: a rule, made of parameters and of what may be known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rota.core.policy import Allocator, Policy
from rota.mechanisms.declare import DeclaredPolicy, Knowledge, Traits
from rota.mechanisms.elastic import ElasticScheduler
from rota.mechanisms.sizes import SizeRule


def sizing(
    name: str,
    rule: Callable[[Any, Knowledge], SizeRule],
    *,
    cites: str,
    summary: str,
    params: type,
    traits: Traits,
    at_intervals: bool = False,
    differs: str = "",
    placement: str = "consolidate",
) -> DeclaredPolicy:
    """Declare a policy that says how many tasks each job should have; with `at_intervals`, only every so often."""

    def make(values: Any, allocator: Allocator, knowledge: Knowledge) -> Policy:
        return ElasticScheduler(rule(values, knowledge), allocator, name=name)

    return DeclaredPolicy(
        name=name,
        cites=cites,
        summary=summary,
        traits=traits,
        params=params,
        placement=placement,
        make=make,
        plans_in_rounds=at_intervals,
        differs=differs,
        whole_cluster=True,
    )
