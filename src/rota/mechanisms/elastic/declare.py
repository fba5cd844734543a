"""The family of elastic policies: a rule chooses how many tasks each job has, the elastic scheduler resizes jobs."""

from __future__ import annotations

from rota.core.engine.protocols import Policy
from rota.mechanisms.declare import RESIZES
from rota.mechanisms.elastic.checked import CheckedSizeRule
from rota.mechanisms.elastic.rule import SizeRule
from rota.mechanisms.elastic.scheduler import ElasticScheduler
from rota.mechanisms.family import Build, Family


def _schedule(rule: SizeRule, build: Build) -> Policy:
    return ElasticScheduler(rule, build.allocator, name=build.name, speed=build.knowledge.speed)


elastic = Family(schedule=_schedule, check=CheckedSizeRule, emits=RESIZES, resizes=True)
