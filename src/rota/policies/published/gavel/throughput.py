"""Maximum total throughput, per price of the device, or with deadlines met (Narayanan et al., sections 4.2, 4.3)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rota.mechanisms.arrays import Floats
from rota.mechanisms.hooks import SimulationInput
from rota.mechanisms.rounds.rule import RoundFeatures, RoundJob, ShareQuestion, Shares
from rota.mechanisms.solvers.lp import Program, Programmed, Solution
from rota.perf.device_facts import OTHER_PRICE, price
from rota.policies.published.gavel.declare import LpParams, SizeParams, gavel, refuse_with_quirks
from rota.policies.published.gavel.entries import amount_of, names_of, unknown_names
from rota.policies.published.gavel.layout import ProgramLayout, lay_out
from rota.policies.published.gavel.least import nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class CostParams(SizeParams):
    """As for all LP policies; `prices` such as v100:2.48/k80:0.45 replace the built-in ones, per hour."""

    prices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        SizeParams.__post_init__(self)
        for name in names_of(self.prices):
            self.price(name)

    def remarks(self, given: SimulationInput) -> Iterator[str]:
        """Return which prices are of types that the cluster lacks."""
        yield from unknown_names(
            "prices", self.prices, [str(kind) for kind in given.device_types], "type of the cluster"
        )

    def price(self, kind: str) -> float:
        """The price of a type."""
        given = amount_of(self.prices, kind, f"the price of {kind!r}")
        known = price(kind) if given is None else given
        return OTHER_PRICE if known is None else known


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedCostParams(CostParams):
    """As the policies without pairs; with `mixed_sharing`, a job may share some of its devices with a smaller job and
    keep the others to itself (only with `compat=none`)."""

    mixed_sharing: bool = False

    def __post_init__(self) -> None:
        CostParams.__post_init__(self)
        refuse_with_quirks(self.compat, "mixed_sharing", self.mixed_sharing, "pairs are of equal size")

    @property
    def features(self) -> RoundFeatures:
        """What the rounds may decide beyond the shares."""
        return RoundFeatures(elastic=self.elastic, cross_type=self.cross_type, mixed_sharing=self.mixed_sharing)


def deadline_s(job: RoundJob) -> float:
    """The deadline of a job: its own, or its SLO times its run time on its fastest type; else never."""
    asked = job.live.job
    if asked.deadline_s is not None:
        return asked.deadline_s
    fastest = max(job.speeds, default=0.0)
    if job.slo is None or asked.work is None or not fastest:
        return math.inf
    return job.live.submitted_s + job.slo * asked.work / fastest


class MaxSumThroughput(Programmed):
    """Steps per second of all jobs together; optionally divided by prices.

    Divided by the remaining work of each job, it is shortest job first: the fractions of jobs completed per second.
    """

    sees_types = True
    backfills = True

    def __init__(
        self,
        params: LpParams,
        *,
        by_cost: bool = False,
        keeps_slos: bool = False,
        packs: bool = False,
        by_length: bool = False,
    ):
        super().__init__()
        self.packs = packs
        self._params = params
        self._by_cost = by_cost
        self._keeps_slos = keeps_slos
        self._by_length = by_length

    def shares(self, question: ShareQuestion) -> Shares:
        """With deadlines if all can be met, otherwise without."""
        needs = self._needs(question) if self._keeps_slos else np.zeros(len(question.jobs))
        left = np.maximum(question.remaining, 1e-9) if self._by_length else np.ones(len(question.jobs))
        layout = lay_out(
            question,
            packs=self.packs,
            alike=lambda row, job: (float(needs[row]), float(left[row])),
            collapse=self._params.collapse,
        )
        if not layout.columns:
            return nothing(question)
        found = self._solver.solve(self._program(layout, layout.first(needs), layout.first(left)))
        if not isinstance(found, Solution) and needs.any():
            found = self._solver.solve(self._program(layout, np.zeros(len(layout.count)), layout.first(left)))
        return layout.split(found.x) if isinstance(found, Solution) else nothing(question)

    def _needs(self, question: ShareQuestion) -> Floats:
        """r_i / (deadline - now); a deadline that is past, or that not even the fastest type meets, does not bind."""
        due_s = np.array([deadline_s(job) for job in question.jobs]) - question.now_s
        need = np.where(due_s > 0, question.remaining / np.where(due_s > 0, due_s, 1.0), 0.0)
        return np.where(need <= np.array([job.fastest for job in question.jobs]), need, 0.0)

    def _program(self, layout: ProgramLayout, needs: Floats, left: Floats) -> Program:
        program = layout.program()
        rows, columns, speeds = layout.progress()
        np.add.at(program.gain, columns, speeds / left[rows])
        if self._by_cost and isinstance(self._params, CostParams):
            price = np.array([self._params.price(kind) for kind in layout.question.types])
            size = np.where(layout.tasks > 0, layout.column_scale / layout.scale[layout.one], 1.0)
            program.gain /= price[layout.kind] * size
        if needs.any():
            high = np.full(len(needs), np.inf)
            program.add_rows(rows, columns, speeds, needs * layout.count, high, [("due", key) for key in layout.keys])
        return program


shortest_job_first_perf = gavel(
    "shortest_job_first_perf",
    lambda params, knowledge: MaxSumThroughput(params, by_length=True),
    summary="The job that can end first goes first, on the type that suits it.",
    params=SizeParams,
    knows="length, speed by type",
    starvation="possible",
)
max_sum_throughput_perf = gavel(
    "max_sum_throughput_perf",
    lambda params, knowledge: MaxSumThroughput(params),
    summary="The most steps per second in total.",
    params=SizeParams,
    starvation="possible",
)
max_sum_throughput_normalized_by_cost_perf = gavel(
    "max_sum_throughput_normalized_by_cost_perf",
    lambda params, knowledge: MaxSumThroughput(params, by_cost=True),
    summary="The most steps per second for the price of the devices.",
    params=CostParams,
    starvation="possible",
)
max_sum_throughput_normalized_by_cost_perf_slos = gavel(
    "max_sum_throughput_normalized_by_cost_perf_SLOs",
    lambda params, knowledge: MaxSumThroughput(params, by_cost=True, keeps_slos=True),
    summary="The most steps per second for the price, with deadlines met where all can be.",
    params=CostParams,
    knows="length, deadline, speed by type",
    starvation="possible",
)
max_sum_throughput_normalized_by_cost_packed_slos = gavel(
    "max_sum_throughput_normalized_by_cost_packed_SLOs",
    lambda params, knowledge: MaxSumThroughput(params, by_cost=True, keeps_slos=True, packs=True),
    summary="The most steps per second for the price, with deadlines met where all can be, with pairs.",
    params=PackedCostParams,
    packs=True,
    knows="length, deadline, speed by type",
    starvation="possible",
)
