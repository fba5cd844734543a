"""Routes for nodes, tenants, policies, the journal, events as they happen, and the probes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse

from rota.api.access import Principal
from rota.api.service import Service, principal, service
from rota.api.wire import NodeOut, Problem, nodes_out
from rota.core.model.job import NodeId
from rota.live.loop.control import News
from rota.live.loop.requests import Asker, NotFound
from rota.live.views.tenant_usage import TenantUse

router = APIRouter(tags=["cluster"], responses={code: {"model": Problem} for code in (401, 403, 404, 422)})
probes = APIRouter(tags=["probes"])
Who = Annotated[Principal, Depends(principal)]
BEHIND = 1000
"""Events that a slow listener may lag behind before it is cut off."""
HEARTBEAT_S = 15.0


@router.get("/nodes", response_model=list[NodeOut])
async def nodes(request: Request, who: Who) -> Response:
    """The nodes and what is free on them."""
    parts = service(request)
    return JSONResponse(nodes_out(parts.control.state.inventory, parts.limits))


@router.post("/nodes/{node_id}/{action}", response_model=NodeOut)
async def drain(
    request: Request,
    who: Who,
    node_id: Annotated[str, Path(max_length=256)],
    action: Annotated[str, Path(pattern="^(drain|undrain)$")],
) -> Response:
    """Let nothing new start on a node, or let it take jobs again."""
    who.must_be_admin()
    parts = service(request)
    await parts.requests.drain(NodeId(node_id), Asker(name=who.name), drained=action == "drain")
    found = [node for node in nodes_out(parts.control.state.inventory, parts.limits) if node["id"] == node_id]
    if not found:
        raise NotFound(f"there is no node {node_id!r}")
    return JSONResponse(found[0])


@router.get("/overview")
async def overview(request: Request, who: Who) -> Response:
    """Devices by type, what tenants hold of what they are promised, and the last day."""
    return JSONResponse(await service(request).lookout.overview(who.tenants))


@router.get("/tenants")
async def tenants(request: Request, who: Who) -> Response:
    """How many jobs each tenant has in each state, and how many devices it holds of those promised to it."""
    parts = service(request)
    counts = await asyncio.to_thread(parts.records.counts)
    uses = parts.lookout.uses(who.tenants)
    out: dict[str, dict[str, int]] = {tenant: {} for tenant in uses}
    for (tenant, state), count in counts.items():
        if who.may_see(tenant):
            out.setdefault(tenant, {})[state] = count
    return JSONResponse(
        [{"tenant": tenant, "jobs": out[tenant], **_held(uses.get(tenant))} for tenant in sorted(out)],
    )


def _held(use: TenantUse | None) -> dict[str, float]:
    if use is None:
        return {"held": 0.0, "guaranteed": 0, "borrowed": 0.0, "lent": 0.0}
    return {"held": use.held, "guaranteed": use.guaranteed, "borrowed": use.borrowed, "lent": use.lent}


@router.get("/policies")
async def policies(request: Request, who: Who) -> Response:
    """The policy in use, and those that there are."""
    from rota.policies import names

    return JSONResponse({"policy": service(request).scheduling.policy, "policies": names()})


@router.get("/stats")
async def stats(request: Request, who: Who) -> Response:
    """How the loop is doing: its steps so far, and how long the last ones took."""
    control = service(request).control
    return JSONResponse({"steps": control.steps, "step_s": list(control.step_s), "trouble": control.trouble})


@router.get("/journal", response_class=Response)
def journal(
    request: Request,
    who: Who,
    back: Annotated[int, Query(ge=0, le=1 << 31, description="How many stretches ago.")] = 0,
) -> Response:
    """The journal's last stretch, since the manager was started, or an earlier one, as `rota sim --replay` reads it."""
    who.must_be_admin()
    records = service(request).records
    stretches = records.segments()
    if back >= len(stretches):
        raise NotFound(f"back: {back} stretches ago there is no journal; {len(stretches)} are kept")
    last = len(stretches) - 1 - back
    first, header = stretches[last]
    before = stretches[last + 1][0] if back else None
    return StreamingResponse(_lines(header, records.steps(first, before)), media_type="application/x-ndjson")


def _lines(header: dict[str, Any], steps: Iterator[str]) -> Iterator[str]:
    yield json.dumps(header, separators=(",", ":")) + "\n"
    for body in steps:
        yield body + "\n"


@router.get("/events", response_class=Response)
async def events(request: Request, who: Who) -> Response:
    """Changes of jobs as they happen, as server-sent events."""
    return StreamingResponse(_events(service(request), who), media_type="text/event-stream")


async def _events(parts: Service, who: Principal) -> AsyncIterator[str]:
    waiting: asyncio.Queue[News | None] = asyncio.Queue(BEHIND)

    def heard(news: Sequence[News]) -> None:
        for each in news:
            if who.may_see(each.tenant) and not waiting.full():
                waiting.put_nowait(each)

    stop = parts.control.listen(heard)
    try:
        yield ": connected\n\n"
        while True:
            try:
                news = await asyncio.wait_for(waiting.get(), HEARTBEAT_S)
            except TimeoutError:
                yield ": still here\n\n"
                continue
            if news is not None:
                data = json.dumps({"id": news.job_id, "tenant": news.tenant, "state": news.state})
                yield f"id: {news.step}\nevent: job\ndata: {data}\n\n"
    finally:
        stop()


@probes.get("/healthz", response_class=PlainTextResponse)
async def healthz() -> str:
    """Whether the process answers."""
    return "ok\n"


@probes.post("/healthz", response_class=PlainTextResponse)
async def empty() -> str:
    """Whether the process takes a request with a body; does nothing, so that other requests can be measured by it."""
    return "ok\n"


@probes.get("/readyz", response_class=PlainTextResponse)
async def readyz(request: Request) -> Response:
    """Whether jobs can be accepted."""
    trouble = service(request).control.trouble
    if trouble is not None:
        return PlainTextResponse(f"nothing can be stored: {trouble}\n", status_code=503)
    return PlainTextResponse("ready\n")
