"""Fair share over time: the owner with the least recent usage goes first; past usage decays."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from rota.core.errors import RotaError
from rota.core.state.decayed_usage import DecayedUsage, Past
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import JobView
from rota.mechanisms.declare import Traits
from rota.mechanisms.ordering.declare import ordering
from rota.mechanisms.ordering.owner import FairnessOwner
from rota.mechanisms.ordering.rule import Turn
from rota.mechanisms.parameters import refuse_odd_weights

ACCOUNTS = "fair-share"
"""The key under which the state keeps owners' decayed usage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FairShareParams:
    """Usage decays by half every `half_life_s`; `entities` have the given `weights`, all others 1."""

    half_life_s: float = 7 * 86400.0
    by: FairnessOwner = FairnessOwner.TENANT
    entities: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.half_life_s > 0:
            raise RotaError(f"half_life_s is {self.half_life_s:g}; it must be above 0")
        refuse_odd_weights(self.entities, self.weights, "weights")


class UseOverTime:
    """Decayed usage of tenants and of their users."""

    def __init__(self, params: FairShareParams) -> None:
        self._params = params
        self._weights = dict(zip(params.entities, params.weights, strict=True))
        self._use = DecayedUsage(params.half_life_s, {})

    def open(self, past: dict[str, Past]) -> None:
        """Continue from the usage in the state."""
        self._use = DecayedUsage(self._params.half_life_s, past.setdefault(ACCOUNTS, {}))

    def of(self, job: JobView) -> Hashable:
        """The accounts that a job is charged to, the tenant's before the user's."""
        user = f"user {job.job.user}"
        if self._params.by is FairnessOwner.USER:
            return (user,)
        return (f"tenant {job.job.tenant}", f"tenant {job.job.tenant} {user}")

    def share(self, job: JobView, inventory: Inventory) -> tuple[float, ...]:
        """Devices."""
        return (job.gpus,)

    def change(self, group: Hashable, share: tuple[float, ...], sign: int, now_s: float, *, resumes: bool) -> None:
        """Start or stop charging the devices of an owner's job."""
        note = self._use.resume if resumes else self._use.change
        for account in _accounts(group):
            note(account, sign * share[0], now_s)

    def rank(self, group: Hashable, now_s: float) -> tuple[float, ...]:
        """Usage over weight, then devices held now; of the tenant, then of the user."""
        rank: list[float] = []
        for account in _accounts(group):
            weight = self._weights.get(account.split(" ", 1)[1], 1.0)
            rank += [round(self._use.of(account, now_s) / weight, 6), round(self._use.held(account) / weight, 6)]
        return tuple(rank)


def _accounts(group: Hashable) -> tuple[str, ...]:
    assert isinstance(group, tuple), "groups are made by `of`"
    return group


@ordering(
    "fair-share",
    cites="fair share with a half-life, as in Slurm's multifactor plugin; Kay and Lauder, CACM 1988",
    groups=UseOverTime,
    traits=Traits(
        scheduling_input="decayed device-seconds of each tenant and user",
        dimensions="space and time",
        priority="least usage for its weight",
        starvation="possible for large jobs",
        placement="consolidated",
    ),
)
def fair_share(job: JobView, now_s: float, params: FairShareParams) -> Turn:
    """The tenant with the least recent usage first, then its user with the least; their jobs in submission order."""
    return Turn((job.seq,))
