"""Horus: jobs are packed by the utilisation predicted from their model (Yeung et al., TPDS 2022)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rota.core.errors import RotaError
from rota.core.model.job import DeviceType
from rota.core.state.job_record import LiveJob
from rota.mechanisms.colocation.declare import colocation
from rota.mechanisms.colocation.remarks import lacks_pairs
from rota.mechanisms.colocation.rule import DefaultColocationRule
from rota.mechanisms.declare import SHARES, Knowledge, Traits
from rota.mechanisms.hooks import SimulationInput
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.busy_fraction import check_fraction, said_by
from rota.perf.speed.utilisation import Predictor


@dataclass(frozen=True, slots=True, kw_only=True)
class HorusParams:
    """At most `most` jobs are packed, while the sum of their predicted utilisations is at most `limit`.

    `unknown` is the utilisation assumed for a job without a profile.
    """

    limit: float = 1.3
    most: int = 2
    unknown: float = 1.0

    def __post_init__(self) -> None:
        if not self.limit > 0 or self.most < 1:
            raise RotaError(f"limit is {self.limit:g} and most {self.most}; they must be above 0")
        check_fraction("unknown", self.unknown)


class Horus(DefaultColocationRule):
    """First in first out; a job that finds no free devices is packed where the predicted utilisation is lowest."""

    def __init__(self, params: HorusParams, knowledge: Knowledge) -> None:
        self._params = params
        self._speed = knowledge.speed
        self._predictors: dict[DeviceType, Predictor] = {}

    def admit(
        self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType, now_s: float
    ) -> tuple[float, ...] | None:
        """Return the predicted utilisation of all jobs together."""
        jobs = [*hosts, live]
        if len(jobs) > self._params.most:
            return None
        if any(not self._speed.beside(live.job, host.job, kind) > 0 for host in hosts):
            return None
        busy = sum(self.predicted(each, kind) for each in jobs)
        return (busy,) if busy <= self._params.limit + 1e-9 else None

    def predicted(self, live: LiveJob, kind: DeviceType) -> float:
        """Return a job's utilisation: its label if it has one, else the prediction from similar models."""
        labelled, model, profiles = said_by(live.job), live.job.model, self._speed.profiles
        if labelled is not None or model is None or not isinstance(profiles, Profiles) or not profiles.knows_pairs:
            return self._speed.use(live.job, kind, self._params.unknown)
        if kind not in self._predictors:
            self._predictors[kind] = Predictor(profiles, kind)
        return self._predictors[kind].of(model)


def lacks_pairs_under(params: HorusParams, given: SimulationInput) -> Iterator[str]:
    """Tell why no two jobs share a device, if so."""
    yield from lacks_pairs(given, params.limit, params.unknown)


horus = colocation(
    "horus",
    Horus,
    cites="Yeung et al., TPDS 2022",
    summary="First in first out; jobs without free devices are packed where the predicted utilisation is lowest.",
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
