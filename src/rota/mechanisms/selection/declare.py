"""The family of selection policies: a rule selects the jobs to place, the selection scheduler places them."""

from __future__ import annotations

from rota.core.engine.protocols import Policy
from rota.mechanisms.declare import PREEMPTS
from rota.mechanisms.family import Build, Family
from rota.mechanisms.selection.checked import CheckedSelectionRule
from rota.mechanisms.selection.rule import SelectionRule
from rota.mechanisms.selection.scheduler import SelectionScheduler


def _schedule(rule: SelectionRule, build: Build) -> Policy:
    return SelectionScheduler(rule, name=build.name)


selection = Family(schedule=_schedule, check=CheckedSelectionRule, emits=PREEMPTS)
