"""Lucid: jobs packed by scores from profiles that need no change of the job (Hu et al., ASPLOS 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.core.errors import RotaError
from rota.core.live import LiveJob
from rota.core.model import DeviceType
from rota.mechanisms.declare import Knowledge, Traits
from rota.mechanisms.declare_sharing import sharing
from rota.mechanisms.sharing_rule import PlainRule

TINY, MEDIUM, JUMBO = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LucidParams:
    """Two jobs are packed if their scores add up to at most `most`: 0 below `tiny`, 1 below `medium`, else 2.

    `tiny` and `medium` are parts of the time in which a job keeps its devices busy.
    """

    most: int = 2
    tiny: float = 0.6
    medium: float = 0.85

    def __post_init__(self) -> None:
        if not 0 <= self.tiny <= self.medium <= 1:
            raise RotaError(f"tiny is {self.tiny:g} and medium {self.medium:g}; they must be parts of 1, in that order")


class Lucid(PlainRule):
    """The shortest first, by devices times time left; packed in pairs, never stopped."""

    def __init__(self, params: LucidParams, knowledge: Knowledge) -> None:
        self._params = params
        self._speed = knowledge.speed

    def order(self, live: LiveJob, now_s: float) -> tuple[float, ...]:
        """The service that is left, as estimated."""
        return (live.left_s(now_s) * live.job.gpus,)

    def joins(
        self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType, now_s: float
    ) -> tuple[float, ...] | None:
        """Beside one other, the idler the better, if the scores allow it and both can run there."""
        (host, *others) = hosts
        if others or self.score(live, kind) + self.score(host, kind) > self._params.most:
            return None
        if not self._speed.beside(live.job, host.job, kind) > 0 or not self._speed.beside(host.job, live.job, kind) > 0:
            return None
        return (self._speed.use(host.job, kind),)

    def score(self, live: LiveJob, kind: DeviceType) -> int:
        """How much of a device a job leaves to others, in three classes."""
        busy = self._speed.use(live.job, kind)
        return TINY if busy < self._params.tiny else MEDIUM if busy < self._params.medium else JUMBO


lucid = sharing(
    "lucid",
    Lucid,
    cites="Hu et al., ASPLOS 2023",
    summary="The shortest first; who finds no devices is packed with a job whose profile leaves room.",
    params=LucidParams,
    traits=Traits(
        prior_knowledge="duration, utilisation from profiles",
        scheduling_input="service left, packing score",
        priority="least service left",
        starvation="possible",
        placement="consolidated, packed",
    ),
)
