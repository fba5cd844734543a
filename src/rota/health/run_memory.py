"""The last runs and their owners: what is weighed to find out whether jobs or nodes are at fault."""

from __future__ import annotations

from collections.abc import Iterable

from rota.health.blame import FaultOdds, RunEnd, failing_nodes, fault_odds

REMEMBERED_RUNS = 400


class RunMemory:
    """The ends of the last runs."""

    def __init__(self, most: int = REMEMBERED_RUNS) -> None:
        self._most = most
        self._runs: list[tuple[RunEnd, str]] = []

    def add(self, run: RunEnd, owner: str) -> None:
        """Remember a run of an owner's job; the oldest is forgotten."""
        self._runs = [*self._runs[-self._most + 1 :], (run, owner)]

    def forget(self, node: str) -> None:
        """Forget what ran on a node that is healthy again: what failed there is not held against it twice."""
        self._runs = [(run, owner) for run, owner in self._runs if node not in run.nodes]

    def odds(self) -> FaultOdds:
        """The probability of each job and node to be at fault."""
        return fault_odds([run for run, _ in self._runs])

    def failing(self, among: Iterable[str], odds: FaultOdds) -> dict[str, str]:
        """Those of some nodes on which jobs of several owners failed, if rather they are at fault, and why."""
        owners = {run.job: owner for run, owner in self._runs}
        return failing_nodes([run for run, _ in self._runs], owners, odds, among)
