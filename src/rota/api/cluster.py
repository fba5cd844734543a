"""Routes for the cluster as a whole: read it, and change it while jobs run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from rota.api.access import Principal
from rota.api.service import Service, principal, service
from rota.api.wire import Problem
from rota.core.codec.values import encode_cluster
from rota.core.model.cluster import Cluster
from rota.files.cluster_file import cluster_from_document
from rota.files.json_input import parse_json
from rota.live.loop.cluster_config import ClusterConfig

router = APIRouter(tags=["cluster"], responses={code: {"model": Problem} for code in (401, 403, 409, 412, 422)})
Caller = Annotated[Principal, Depends(principal)]
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"type": "object", "description": "A cluster file, Rota's or HiveD's."}}
        },
    }
}


class ChangeOut(BaseModel):
    """The effect of a change of the cluster."""

    changed: dict[str, list[str]] = Field(description="Nodes added and removed, and tenants whose guarantees change.")
    without_guarantee: list[str] = Field(description="Jobs that requested a guarantee and now have none.")


@router.get("/cluster", response_class=Response)
async def cluster(request: Request, caller: Caller) -> Response:
    """Return the nodes and the guarantees of tenants, in the format of a journal's header."""
    caller.must_be_admin()
    present = _present(service(request))
    return JSONResponse(encode_cluster(present.cluster), headers={"ETag": f'"{present.tag}"'})


@router.put("/cluster", response_model=ChangeOut, openapi_extra=_BODY)
async def change(
    request: Request,
    caller: Caller,
    if_match: Annotated[str | None, Header(max_length=100)] = None,
    dry_run: Annotated[bool, Query(description="Only report what would change.")] = False,
) -> Response:
    """Change the cluster to a cluster file while jobs run. With If-Match, only if it has not changed."""
    caller.must_be_admin()
    parts = service(request)
    after = await asyncio.to_thread(_read, await request.body())
    changed = await parts.requests.change_cluster(after, caller.asker, tag=if_match, dry_run=dry_run)
    answer = {"changed": changed, "without_guarantee": _without_guarantee(parts)}
    return JSONResponse(answer, headers={"ETag": f'"{_present(parts).tag}"'})


def _read(body: bytes) -> Cluster:
    return cluster_from_document(parse_json(body), Path("cluster"))


def _present(parts: Service) -> ClusterConfig:
    assert parts.control.present is not None, "a manager knows its cluster"
    return parts.control.present


def _without_guarantee(parts: Service) -> list[str]:
    state = parts.control.state
    if state.ledger is None:
        return []
    return [
        name for name, live in state.jobs.items() if not live.state.is_final and not state.ledger.keeps_promise(live)
    ]
