"""Routes for GPUs: what they do now and did before, by device, by job and by user."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from rota.api.access import Principal
from rota.api.jobs import JobPath, visible
from rota.api.service import principal, service
from rota.api.wire import PROBLEMS, moment
from rota.core.model.job import JobId
from rota.drivers.local.gpu.sensors import FIELDS
from rota.drivers.local.gpu.user_report import DAYS, rows_of
from rota.live.gpus.monitor import job_report
from rota.live.intake.requests import NotFound
from rota.live.views.gpus import gpu_rows

router = APIRouter(tags=["cluster"], responses=PROBLEMS)
Caller = Annotated[Principal, Depends(principal)]


class GpuOut(BaseModel):
    """A GPU as it is now; null where it does not tell."""

    gpu: int = Field(description="Its index.")
    uuid: str
    name: str
    memory_total_bytes: int
    busy: float | None = Field(None, description="Percent of the time in which a kernel ran.")
    memory_busy: float | None = Field(None, description="Percent of the time in which its memory was read or written.")
    memory_bytes: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    sm_mhz: float | None = None
    memory_mhz: float | None = None
    pcie_rx_bps: float | None = None
    pcie_tx_bps: float | None = None
    nvlink_rx_bps: float | None = None
    nvlink_tx_bps: float | None = None
    energy_kwh: float | None = Field(None, description="Since the driver was loaded.")
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    xid: int | None = Field(None, description="Its last critical error since the manager's start.")
    lost: bool = Field(description="Whether it did not answer the last time.")
    jobs: list[str] = Field(description="The jobs on it that you may see.")
    other_jobs: int = Field(description="How many others are on it.")
    shared: bool = Field(description="Whether several jobs are on it: its figures can't be attributed to one.")


class GpuUserOut(BaseModel):
    """The GPU time of a user, and how much of it was idle."""

    user: str
    gpu_hours: float
    idle_gpu_hours: float
    shared_gpu_hours: float = Field(description="On shared GPUs, where idle time can't be attributed.")
    idle_part: float | None = Field(None, description="Of the attributable time.")


@router.get("/gpus", response_model=list[GpuOut])
async def gpus(request: Request, caller: Caller) -> Response:
    """List the GPUs of this machine with their latest sample; empty where there are none."""
    parts = service(request)
    return JSONResponse(gpu_rows(parts.gpus, parts.control, caller.tenants))


@router.get("/gpus/users", response_model=list[GpuUserOut])
async def users(
    request: Request,
    caller: Caller,
    days: Annotated[int, Query(ge=1, le=DAYS, description="Only the last days, today included.")] = DAYS,
) -> Response:
    """Report GPU hours held and idle by user; all users for an admin, else your own."""
    monitor = service(request).gpus
    if monitor is None:
        return JSONResponse([])
    seen = None if caller.tenants is None else [caller.asker.name]
    return JSONResponse(rows_of(monitor.telemetry.users.report(days), seen))


@router.get("/gpus/{index}/series", response_class=Response)
async def device_series(request: Request, caller: Caller, index: Annotated[int, Path(ge=0, le=4096)]) -> Response:
    """Return the samples of a GPU since the manager's start: each second at first, coarser the longer ago."""
    monitor = service(request).gpus
    if monitor is None or index >= len(monitor.telemetry.gpus):
        raise NotFound(f"there is no GPU {index}")
    points = monitor.telemetry.gpus[index].series.points()
    return JSONResponse(
        {"fields": ["at", *FIELDS], "points": [[moment(point.at_s), *point.values] for point in points]}
    )


@router.get("/jobs/{job_id}/gpus", response_class=Response)
async def of_job(request: Request, caller: Caller, job_id: JobPath) -> Response:
    """Return a job's GPUs over time, its energy with cost and emissions where rates are set, and its warnings."""
    parts = service(request)
    await visible(parts, caller, job_id)
    monitor = parts.gpus
    if monitor is None:
        found = await asyncio.to_thread(job_report, parts.home, JobId(job_id))
    else:
        found = monitor.job_report(JobId(job_id))
    return JSONResponse(with_dates(found))


def with_dates(report: dict[str, Any]) -> dict[str, Any]:
    """Return a job's report with moments as dates."""
    series = report["series"]
    if series is not None:
        gpus = [
            {"gpu": each["gpu"], "points": [[moment(at_s), *values] for at_s, *values in each["points"]]}
            for each in series["gpus"]
        ]
        xids = [{"at": moment(each["at_s"]), "gpu": each["gpu"], "xid": each["xid"]} for each in series["xids"]]
        series = {**series, "fields": ["at", *series["fields"]], "gpus": gpus, "xids": xids}
    warnings = [{"at": moment(each["at_s"]), "code": each["code"], "text": each["text"]} for each in report["warnings"]]
    return {**report, "series": series, "warnings": warnings}
