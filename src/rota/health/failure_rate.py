"""The failure rate of a fleet: a published rate to begin with, corrected by what is seen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rota.health.checkpoint_interval import DAY_S, mean_time_to_failure, young

ASSUMED_WRITE_S = 30.0
"""How long a checkpoint takes, until the job has made one."""
SHORTEST_S = 60.0


class FailureRate:
    """Failures per 1000 node-days: the mean of a gamma distribution that begins with one failure at the prior rate."""

    def __init__(self, prior: float = 6.5) -> None:
        self._prior = prior
        self._failures = 0
        self._node_days = 0.0
        self._failed_at_s: dict[str, float] = {}

    def watched(self, nodes: int, passed_s: float) -> None:
        """So many nodes were watched for so long."""
        self._node_days += nodes * max(passed_s, 0.0) / DAY_S

    def failed(self) -> None:
        """A node failed."""
        self._failures += 1

    def failed_on(self, nodes: Sequence[str], at_s: float, apart_s: float) -> bool:
        """One of these nodes failed. Return False, and count nothing, if one of them did less than `apart_s` ago."""
        again = any(at_s - self._failed_at_s.get(name, -math.inf) < apart_s for name in nodes)
        self._failed_at_s.update(dict.fromkeys(nodes, at_s))
        if not again:
            self.failed()
        return not again

    @property
    def per_1000_node_days(self) -> float:
        """The present estimate."""
        return 1000.0 * (1 + self._failures) / (1000.0 / self._prior + self._node_days)

    def mttf_s(self, nodes: int) -> float:
        """Seconds between two failures of a job on so many nodes."""
        return mean_time_to_failure(max(nodes, 1), self.per_1000_node_days)

    def interval_s(self, nodes: int) -> float:
        """Young's interval for a job on so many nodes that has made no checkpoint yet."""
        mttf_s = self.mttf_s(nodes)
        return min(max(young(ASSUMED_WRITE_S, mttf_s), SHORTEST_S), mttf_s)

    def encode(self) -> dict[str, float]:
        """What was seen, as JSON values."""
        return {"failures": self._failures, "node_days": self._node_days}

    def restore(self, seen: Mapping[str, Any]) -> None:
        """Take over what an earlier manager has seen."""
        failures, node_days = int(seen["failures"]), float(seen["node_days"])
        if failures < 0 or not 0 <= node_days < math.inf:
            raise ValueError("what was seen of failures makes no sense")
        self._failures, self._node_days = failures, node_days

    def variables(self, nodes: int) -> dict[str, str]:
        """The variables by which a job that saves its progress knows how often to do that."""
        every_s, mttf_s = self.interval_s(nodes), self.mttf_s(nodes)
        return {"ROTA_CHECKPOINT_EVERY": f"{max(every_s, 1.0):.0f}", "ROTA_MTTF": f"{max(mttf_s, 1.0):.0f}"}
