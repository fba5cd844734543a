"""Declaration of elastic policies."""

from __future__ import annotations

from functools import partial

from rota.mechanisms.declare import by_rule
from rota.mechanisms.elastic.scheduler import ElasticScheduler

sizing = partial(by_rule, ElasticScheduler)
