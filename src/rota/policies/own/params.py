"""The parameters of Rota's own policy: one set for all workloads, each ingredient with its own switch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rota.core.errors import RotaError


@dataclass(frozen=True, slots=True, kw_only=True)
class RotaParams:
    """The first level ends at `base_gpu_s` device-seconds, or at five restarts; each further one `growth` times later.

    `margin`: a running job counts as this many levels lower than it is, down to the fourth level, so that it gives way
    only to jobs that have had far less. The other parameters switch ingredients off. `gangs`: beyond the first levels,
    the service of a gang of k of m devices counts by (m - k + 1) / m, the room that it leaves; not where types differ
    in speed. `progress`: jobs that report how far they are rank by the lesser of the service they had and the service
    to come. `declared` and `learned`: so do jobs whose length is predictable from what users declare, or from earlier
    jobs. `elastic`: sizes of elastic jobs are chosen. `types`: device types are assigned by speed. `deadlines`: a job
    ranks one level earlier in the second half of the time to its deadline. `users`: in a level, the n-th job of a user
    comes after the first jobs of others, n in doublings. `half_life_s` and `lenient`: a user who had more than an equal
    share of its tenant's service, which fades by half in this time, comes later, by what it is ahead divided by
    `lenient`; without a half- life, the past does not count. `priorities`: a job of a higher priority comes before all
    levels of a lower one. `settle`: a job is not stopped before it has run this many times what a restart costs.
    `sharing`: where speeds of pairs are measured, a job that finds no free devices joins one of equal size with which
    it gains; sizes and types are not planned then. `spread`: the fraction of its speed that a gang loses on more nodes
    than it needs. It waits for as few as possible for ten minutes and that fraction of the time that it has run, unless
    a placement is given. 0: it never waits.
    """

    base_gpu_s: float = 150.0
    growth: float = 2.0
    margin: int = 2
    gangs: bool = True
    progress: bool = True
    declared: bool = True
    learned: bool = True
    elastic: bool = True
    types: bool = True
    deadlines: bool = True
    users: bool = True
    half_life_s: float = 7 * 86400.0
    lenient: float = 64.0
    priorities: bool = True
    settle: float = 0.0
    sharing: bool = False
    spread: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.base_gpu_s < math.inf:
            raise RotaError(f"base_gpu_s is {self.base_gpu_s:g}; it must be a number above 0")
        if not 1 < self.growth < math.inf:
            raise RotaError(f"growth is {self.growth:g}; it must be a number above 1")
        if self.margin < 0:
            raise RotaError(f"margin is {self.margin}; it must be a number of levels of 0 or more")
        if not 0 <= self.settle < math.inf:
            raise RotaError(f"settle is {self.settle:g}; it must be a number of 0 or more")
        if not 0 <= self.half_life_s < math.inf:
            raise RotaError(f"half_life_s is {self.half_life_s:g}; it must be a number of seconds of 0 or more")
        if not 0 < self.lenient < math.inf:
            raise RotaError(f"lenient is {self.lenient:g}; it must be a number above 0")
        if not 0 <= self.spread < math.inf:
            raise RotaError(f"spread is {self.spread:g}; it must be a number of 0 or more")
