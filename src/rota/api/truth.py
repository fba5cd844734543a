"""Routes for forecasts against what happened, and for what-ifs with their error bar."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from rota.api.access import AccessRole, Forbidden, Principal
from rota.api.service import Service, principal, service
from rota.api.wire import PROBLEMS, moment
from rota.core.model.job import DeviceType
from rota.live.truth.scores import ScoredMoment
from rota.live.workers.whatif import Answer, WhatIf, changed

router = APIRouter(tags=["truth"], responses=PROBLEMS)
Caller = Annotated[Principal, Depends(principal)]
DaysQuery = Annotated[float, Query(gt=0, le=3650, description="The period, in days.")]
MOST_ALTERNATIVES = 8
METRICS = ("avg_jct_s", "median_jct_s", "p99_jct_s", "avg_wait_s", "makespan_s", "gpu_allocation", "preemptions")


class TruthRowOut(BaseModel):
    """The scores of one group of forecasts. Errors are parts of the time from the forecast to the moment."""

    group: str
    forecasts: int
    scored: int
    overdue: int = Field(description="Not come yet, though the range is over; counted as not covered.")
    coverage: float | None = Field(description="The share of ranges that held what happened; 0.9 is wanted.")
    coverage_uncalibrated: float | None = Field(description="The same of ranges before their calibration.")
    median_error: float | None
    p90_error: float | None
    lateness: float | None = Field(description="The median lateness; negative where jobs are sooner than predicted.")
    width: float | None = Field(description="The median width of the range over the time to its median.")


class TruthOut(BaseModel):
    """The scores of the forecasts of a period."""

    days: float
    moment: str
    kept: int
    all: TruthRowOut
    groups: dict[str, list[TruthRowOut]] = Field(description="By policy, horizon, kind, size, cause and tenant.")
    over_time: list[TruthRowOut]
    calibration: dict[str, Any] = Field(description="Factors by which ranges are stretched below and above.")


class CauseOut(BaseModel):
    """The error of starts that is left when an assumption is replaced by what happened."""

    assumption: str
    forecasts: int
    median_error: float | None
    mean_error: float | None
    explains: float | None = Field(description="The part of the mean error that goes away.")


class ErrorOut(BaseModel):
    """How far the simulation of the present policy is from what happened."""

    jobs: int
    metrics: dict[str, float | None] = Field(description="By metric: simulated over real, less one.")
    per_job_median: float
    per_job_p90: float
    by_chance: list[float] | None = Field(
        description="Least and largest error of the mean completion time with submissions moved by up to 20 ms."
    )


class SideOut(BaseModel):
    """The metrics of one scenario, or of what happened."""

    policy: str
    devices: int
    metrics: dict[str, Any]


class WhatIfOut(BaseModel):
    """What happened, the present policy simulated, and the alternatives."""

    jobs: int
    left_out: int
    since: str
    real: SideOut | None
    now: SideOut
    alternatives: list[SideOut]
    error: ErrorOut | None = Field(description="The error bar of all simulations; null where nothing can be compared.")


class WhatIfIn(BaseModel):
    """A question: which alternatives to the present scenario."""

    model_config = ConfigDict(extra="forbid")

    policies: list[str] = Field(default=[], max_length=MOST_ALTERNATIVES)
    add_nodes: dict[str, int] = Field(default={}, description="By device type: nodes more than now.")
    days: float = Field(default=1.0, gt=0, le=3650)
    restart_s: float | None = Field(
        default=None, ge=0, le=86400, description="The cost of a restart; learned if not given."
    )


@router.get("/truth", response_model=TruthOut)
async def truth(
    request: Request,
    caller: Caller,
    days: DaysQuery = 7.0,
    of: Annotated[ScoredMoment, Query(description="The forecast moment.")] = ScoredMoment.START,
) -> Response:
    """Return how many ranges of forecasts held what happened, and how far their medians were off."""
    found = service(request).truth
    tenants = None if caller.tenants is None else sorted(caller.tenants)
    tables = await found.tables(days, of, tenants)
    return JSONResponse({**tables.encode(), "calibration": found.factors()})


@router.get("/truth/simulated", response_model=WhatIfOut)
async def simulated(request: Request, caller: Caller, days: DaysQuery = 7.0) -> Response:
    """Simulate the jobs of the last days under the present policy, and compare with what happened."""
    _must_study(caller)
    parts = service(request)
    return JSONResponse(answer_out(await parts.truth.simulated(parts.lookout.promised.cluster, days)))


@router.get("/truth/causes", response_model=list[CauseOut])
async def causes(request: Request, caller: Caller, days: DaysQuery = 7.0) -> Response:
    """Make past forecasts again with one assumption at a time replaced by what really happened."""
    _must_study(caller)
    return JSONResponse([asdict(row) for row in await service(request).truth.causes(days)])


@router.post("/what-if", response_model=WhatIfOut)
async def what_if(request: Request, caller: Caller, question: WhatIfIn) -> Response:
    """Simulate the jobs of the last days under other policies or with more nodes, with the error bar of that."""
    _must_study(caller)
    parts = service(request)
    return JSONResponse(answer_out(await asked(parts, question)))


async def asked(parts: Service, question: WhatIfIn) -> Answer:
    """Return the answer to a question."""
    cluster = parts.lookout.promised.cluster
    asks = WhatIf(parts.records, parts.scheduling)
    now = await asyncio.to_thread(asks.present, cluster, restart_s=question.restart_s)
    after = changed(cluster, added={DeviceType(kind): count for kind, count in question.add_nodes.items()})
    policies = question.policies or ([parts.scheduling.policy] if question.add_nodes else [])
    return await asks.ask(now, [replace(now.under(policy), cluster=after) for policy in policies], question.days)


def answer_out(answer: Answer) -> dict[str, Any]:
    """Return an answer as JSON."""
    value = answer.encode()
    value["since"] = moment(value.pop("since_s"))
    for side in (value["real"], value["now"], *value["alternatives"]):
        if side is not None:
            del side["jct_s"]
    return value


def _must_study(caller: Principal) -> None:
    """Raise `Forbidden` unless the caller may simulate the jobs of all tenants."""
    if caller.role is AccessRole.VIEWER or caller.tenants is not None:
        raise Forbidden(f"token {caller.name!r} can't simulate; this needs a member or admin token for all tenants")
