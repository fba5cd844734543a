"""Horus: jobs packed by the utilisation that is predicted from their model (Yeung et al., TPDS 2022)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rota.core.errors import RotaError
from rota.core.model.job import DeviceType
from rota.core.state.job_record import LiveJob
from rota.mechanisms.colocation.declare import sharing
from rota.mechanisms.colocation.remarks import lacks_pairs
from rota.mechanisms.colocation.rule import DefaultColocationRule
from rota.mechanisms.declare import SHARES, Knowledge, Traits
from rota.mechanisms.hooks import SimulationInput
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.busy_fraction import check_part, said_by
from rota.perf.speed.utilisation import Predictor


@dataclass(frozen=True, slots=True, kw_only=True)
class HorusParams:
    """Jobs share devices while their predicted utilisations add up to at most `limit`, at most `most` of them.

    A job of which nothing is known is taken to be busy for the part `unknown` of the time.
    """

    limit: float = 1.3
    most: int = 2
    unknown: float = 1.0

    def __post_init__(self) -> None:
        if not self.limit > 0 or self.most < 1:
            raise RotaError(f"limit is {self.limit:g} and most {self.most}; they must be above 0")
        check_part("unknown", self.unknown)


class Horus(DefaultColocationRule):
    """First in first out; who finds no devices goes where the predicted use is least."""

    def __init__(self, params: HorusParams, knowledge: Knowledge) -> None:
        self._params = params
        self._speed = knowledge.speed
        self._predictors: dict[DeviceType, Predictor] = {}

    def joins(
        self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType, now_s: float
    ) -> tuple[float, ...] | None:
        """By the use that is predicted for all together."""
        jobs = [*hosts, live]
        if len(jobs) > self._params.most:
            return None
        if any(not self._speed.beside(live.job, host.job, kind) > 0 for host in hosts):
            return None
        busy = sum(self.predicted(each, kind) for each in jobs)
        return (busy,) if busy <= self._params.limit + 1e-9 else None

    def predicted(self, live: LiveJob, kind: DeviceType) -> float:
        """How busy a job will keep its devices, by its model's likes; what it says itself comes first."""
        said, model, profiles = said_by(live.job), live.job.model, self._speed.profiles
        if said is not None or model is None or not isinstance(profiles, Profiles) or not profiles.knows_pairs:
            return self._speed.use(live.job, kind, self._params.unknown)
        if kind not in self._predictors:
            self._predictors[kind] = Predictor(profiles, kind)
        return self._predictors[kind].of(model)


def lacks_pairs_under(params: HorusParams, given: SimulationInput) -> Iterator[str]:
    """Tell why no two jobs share a device, if so."""
    yield from lacks_pairs(given, params.limit, params.unknown)


horus = sharing(
    "horus",
    Horus,
    cites="Yeung et al., TPDS 2022",
    summary="First in first out; who finds no devices is packed where the utilisation predicted from models is least.",
    params=HorusParams,
    traits=Traits(
        prior_knowledge="model, from which utilisation is predicted",
        scheduling_input="arrival order, predicted utilisation",
        placement="consolidated, packed",
    ),
    emits=SHARES,
    remarks=lacks_pairs_under,
    packs=True,
)
