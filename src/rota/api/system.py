"""Routes for nodes, tenants, policies, the journal, live events, and the probes."""

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
from rota.live.intake.requests import NotFound
from rota.live.intake.tenant_limits import TenantLimits
from rota.live.loop.entry import News
from rota.live.loop.policy_faults import fault_of
from rota.live.views.tenant_usage import TenantUse
from rota.store import clock

router = APIRouter(tags=["cluster"], responses={code: {"model": Problem} for code in (401, 403, 404, 422)})
probes = APIRouter(tags=["probes"])
Caller = Annotated[Principal, Depends(principal)]
MAX_BEHIND = 1000
"""Events that are queued for a slow listener; further ones are dropped."""
HEARTBEAT_S = 15.0


@router.get("/nodes", response_model=list[NodeOut])
async def nodes(request: Request, caller: Caller) -> Response:
    """List the nodes and their free devices."""
    parts = service(request)
    return JSONResponse(nodes_out(parts.control.state.inventory, parts.limits, parts.health_of))


@router.post("/nodes/{node_id}/{action}", response_model=NodeOut)
async def drain(
    request: Request,
    caller: Caller,
    node_id: Annotated[str, Path(max_length=256)],
    action: Annotated[str, Path(pattern="^(drain|undrain|repair|clear)$")],
) -> Response:
    """Drain a node, so that no new job starts there, or undrain it.

    `repair` notes that its repair has begun: passed checks bring it back. `clear` declares it healthy.
    """
    caller.must_be_admin()
    parts = service(request)
    if action in ("repair", "clear"):
        _care(parts, NodeId(node_id), action)
    else:
        await parts.requests.drain(NodeId(node_id), caller.asker, drained=action == "drain")
        if action == "undrain" and parts.health is not None:
            parts.health.nodes.clear(NodeId(node_id), clock.now_s())
    listed = nodes_out(parts.control.state.inventory, parts.limits, parts.health_of)
    found = [node for node in listed if node["id"] == node_id]
    if not found:
        raise NotFound(f"there is no node {node_id!r}")
    return JSONResponse(found[0])


def _care(parts: Service, node_id: NodeId, action: str) -> None:
    """Note that a node is being repaired, or declare it healthy."""
    if parts.health is None:
        raise NotFound(
            "the health of this cluster's nodes is kept by Kubernetes; see its node conditions, and remove its taint"
        )
    if node_id not in {account.node.id for account in parts.control.state.inventory.nodes}:
        raise NotFound(f"there is no node {node_id!r}")
    if action == "repair":
        parts.health.nodes.repair(node_id, clock.now_s())
    else:
        parts.health.nodes.clear(node_id, clock.now_s())


@router.get("/overview")
async def overview(request: Request, caller: Caller) -> Response:
    """Summarise devices by type, usage and guarantees of tenants, and the last day."""
    return JSONResponse(await service(request).lookout.overview(caller.tenants))


@router.get("/tenants")
async def tenants(request: Request, caller: Caller) -> Response:
    """List each tenant's jobs by state, and its devices: held, guaranteed, borrowed and lent."""
    parts = service(request)
    counts = await asyncio.to_thread(parts.records.counts)
    uses = parts.lookout.uses(caller.tenants)
    known = [] if parts.tenants is None else parts.tenants.names()
    out: dict[str, dict[str, int]] = {tenant: {} for tenant in (*uses, *known) if caller.may_see(tenant)}
    for (tenant, state), count in counts.items():
        if caller.may_see(tenant):
            out.setdefault(tenant, {})[state] = count
    return JSONResponse(
        [
            {"tenant": tenant, "jobs": out[tenant], **_held(uses.get(tenant)), **_limits(parts, tenant)}
            for tenant in sorted(out)
        ],
    )


def _limits(parts: Service, tenant: str) -> dict[str, Any]:
    if parts.tenants is None:
        return {"max_priority": {}, **TenantLimits().encode()}
    return {"max_priority": parts.tenants.caps_of(tenant), **parts.tenants.limits_of(tenant).encode()}


def _held(use: TenantUse | None) -> dict[str, float]:
    if use is None:
        return {"held": 0.0, "guaranteed": 0, "borrowed": 0.0, "lent": 0.0}
    return {"held": use.held, "guaranteed": use.guaranteed, "borrowed": use.borrowed, "lent": use.lent}


@router.get("/policies")
async def policies(request: Request, caller: Caller) -> Response:
    """Return the active policy, and the names of all policies."""
    from rota.policies import names

    return JSONResponse({"policy": service(request).scheduling.policy, "policies": names()})


@router.get("/stats")
async def stats(request: Request, caller: Caller) -> Response:
    """Return statistics of the loop: its steps so far, and the duration of the latest."""
    control = service(request).control
    held = {"longest_hold_s": round(control.watch.longest_s(), 4)}
    faults = {"trouble": control.trouble, "policy_fault": fault_of(control.engine.policy)}
    return JSONResponse({"steps": control.steps, "step_s": list(control.step_s), **faults, **held})


@router.get("/journal", response_class=Response)
def journal(
    request: Request,
    caller: Caller,
    back: Annotated[int, Query(ge=0, le=1 << 31, description="How many segments ago.")] = 0,
) -> Response:
    """Return the current segment of the journal, or an earlier one, as `rota sim --replay` reads it."""
    caller.must_be_admin()
    records = service(request).records
    journal_segments = records.segments()
    if back >= len(journal_segments):
        raise NotFound(f"back: there is no journal segment {back} back; {len(journal_segments)} are kept")
    last = len(journal_segments) - 1 - back
    first, header = journal_segments[last]
    before = journal_segments[last + 1][0] if back else None
    return StreamingResponse(_lines(header, records.steps(first, before)), media_type="application/x-ndjson")


def _lines(header: dict[str, Any], steps: Iterator[str]) -> Iterator[str]:
    yield json.dumps(header, separators=(",", ":")) + "\n"
    for body in steps:
        yield body + "\n"


@router.get("/events", response_class=Response)
async def events(request: Request, caller: Caller) -> Response:
    """Stream changes of jobs as server-sent events."""
    return StreamingResponse(_events(service(request), caller), media_type="text/event-stream")


async def _events(parts: Service, caller: Principal) -> AsyncIterator[str]:
    queued: asyncio.Queue[News | None] = asyncio.Queue(MAX_BEHIND)

    def on_news(news: Sequence[News]) -> None:
        for each in news:
            if caller.may_see(each.tenant) and not queued.full():
                queued.put_nowait(each)

    stop = parts.control.listen(on_news)
    try:
        yield ": connected\n\n"
        while True:
            try:
                news = await asyncio.wait_for(queued.get(), HEARTBEAT_S)
            except TimeoutError:
                yield ": heartbeat\n\n"
                continue
            if news is not None:
                told = {"id": news.job_id, "tenant": news.tenant, "state": news.state}
                if news.warning:
                    told["warning"] = news.warning
                kind = "warning" if news.warning else "job"
                yield f"id: {news.step}\nevent: {kind}\ndata: {json.dumps(told)}\n\n"
    finally:
        stop()


@probes.get("/healthz", response_class=PlainTextResponse)
async def healthz() -> str:
    """Liveness probe."""
    return "ok\n"


@probes.post("/healthz", response_class=PlainTextResponse)
async def empty() -> str:
    """Accept a body and do nothing: the baseline for measurements of other requests."""
    return "ok\n"


@probes.get("/readyz", response_class=PlainTextResponse)
async def readyz(request: Request) -> Response:
    """Readiness probe: whether jobs can be accepted."""
    trouble = service(request).control.trouble
    if trouble is not None:
        return PlainTextResponse(f"the database can't be written: {trouble}\n", status_code=503)
    return PlainTextResponse("ready\n")
