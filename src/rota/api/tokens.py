"""Routes for tokens, and for what was done by whom. All of them are an admin's."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from rota.api.access import AccessRole, Principal
from rota.api.service import principal, service
from rota.api.wire import Problem, moment
from rota.files.job_shape import Name
from rota.live.loop.requests import NotFound
from rota.store.tokens import StoredToken

log = logging.getLogger("rota.api")
router = APIRouter(tags=["tokens"], responses={code: {"model": Problem} for code in (401, 403, 404, 422)})
Who = Annotated[Principal, Depends(principal)]


class NewToken(BaseModel):
    """A token that is wanted."""

    model_config = ConfigDict(extra="forbid")

    name: Name
    role: Literal["admin", "member", "viewer"] = "member"
    tenants: Annotated[list[Name | Literal["*"]], Field(max_length=1000)] = []
    expires_in_s: Annotated[float | None, Field(gt=0, le=1e10)] = None


@router.post("/tokens", status_code=201)
async def create(request: Request, who: Who, wanted: NewToken) -> Response:
    """A new token; its secret is in this answer and nowhere else."""
    who.must_be_admin()
    access = service(request).access
    expires_s = None if wanted.expires_in_s is None else time.time() + wanted.expires_in_s
    token, secret = await asyncio.to_thread(
        access.create, wanted.name, AccessRole(wanted.role), tuple(wanted.tenants), expires_s, who.name
    )
    log.info("token-create", extra={"token": token.id, "holder": token.name, "who": who.name})
    return JSONResponse({**_out(token), "token": secret}, status_code=201)


@router.get("/tokens")
async def listed(request: Request, who: Who) -> Response:
    """Every token without its secret."""
    who.must_be_admin()
    return JSONResponse([_out(token) for token in service(request).access.all()])


@router.delete("/tokens/{token_id}")
async def revoke(request: Request, who: Who, token_id: Annotated[str, Path(max_length=32)]) -> Response:
    """Make a token worthless."""
    who.must_be_admin()
    gone = await asyncio.to_thread(service(request).access.revoke, token_id, who.name)
    if gone is None:
        raise NotFound(f"there is no token {token_id!r}")
    log.info("token-revoke", extra={"token": gone.id, "who": who.name})
    return JSONResponse(_out(gone))


@router.get("/audit")
async def audit(request: Request, who: Who, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> Response:
    """Who changed what, newest first."""
    who.must_be_admin()
    rows = await asyncio.to_thread(service(request).records.audit, limit)
    return JSONResponse(
        [
            {"at": moment(row.at_s), "who": row.who, "what": row.what, "thing": row.thing, "detail": row.detail}
            for row in rows
        ]
    )


def _out(token: StoredToken) -> dict[str, Any]:
    return {
        "id": token.id,
        "name": token.name,
        "role": token.role,
        "tenants": list(token.tenants),
        "created": moment(token.created_s),
        "expires": moment(token.expires_s),
        "revoked": moment(token.revoked_s),
    }
