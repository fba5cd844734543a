"""How policies that choose sizes introduce themselves: a rule that says how many tasks each job should have."""

from __future__ import annotations

from functools import partial

from rota.mechanisms.declare import RESIZES, by_rule
from rota.mechanisms.elastic.scheduler import ElasticScheduler

sizing = partial(by_rule, ElasticScheduler, emits=RESIZES)
