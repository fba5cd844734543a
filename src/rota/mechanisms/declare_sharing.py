"""How policies that share devices introduce themselves: a rule, made of parameters and of what may be known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rota.core.model import Job
from rota.core.policy import Allocator, Policy
from rota.mechanisms.declare import DeclaredPolicy, Knowledge, Traits
from rota.mechanisms.joining import SharingRule, SharingScheduler


def sharing(
    name: str,
    rule: Callable[[Any, Knowledge], SharingRule],
    *,
    cites: str,
    summary: str,
    params: type,
    traits: Traits,
    placement: str = "consolidate",
) -> DeclaredPolicy:
    """Declare a policy from a rule that says who may share devices with whom."""

    def make(values: Any, allocator: Allocator, knowledge: Knowledge) -> Policy:
        return SharingScheduler(rule(values, knowledge), allocator, name=name)

    return DeclaredPolicy(
        name=name,
        cites=cites,
        summary=summary,
        traits=traits,
        params=params,
        placement=placement,
        make=make,
        whole_cluster=True,
    )


def label(job: Job, name: str) -> str | None:
    """What a job's label of that name says, if it has one."""
    return next((value for key, value in job.labels if key == name), None)
