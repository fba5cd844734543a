"""Routes for tokens, for admins only."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from rota.api.access import AccessRole, Principal
from rota.api.service import principal, service
from rota.api.wire import Problem, moment
from rota.drivers.local.confinement.accounts import token_account
from rota.files.job_shape import Name, name_of
from rota.live.intake.requests import NotFound
from rota.store import clock
from rota.store.tokens import StoredToken

log = logging.getLogger("rota.api")
router = APIRouter(tags=["tokens"], responses={code: {"model": Problem} for code in (401, 403, 404, 422)})
Caller = Annotated[Principal, Depends(principal)]


def _tenant_or_all(value: object) -> object:
    return value if value == "*" else name_of(value)


TenantOrAll = Annotated[str, BeforeValidator(_tenant_or_all)]


class NewToken(BaseModel):
    """The request for a new token."""

    model_config = ConfigDict(extra="forbid")

    name: Name
    role: Literal["admin", "maintainer", "member", "viewer"] = "member"
    tenants: Annotated[list[TenantOrAll], Field(max_length=1000)] = []
    expires_in_s: Annotated[float | None, Field(gt=0, le=1e10)] = None
    account: Annotated[str | None, Field(min_length=1, max_length=64)] = None
    """The Unix account under which its holder's jobs run."""


@router.post("/tokens", status_code=201)
async def create(request: Request, caller: Caller, wanted: NewToken) -> Response:
    """Create a token; only this response contains its secret."""
    caller.must_be_admin()
    access = service(request).access
    for tenant in wanted.tenants:
        if tenant != "*":
            service(request).must_exist(tenant)
    expires_s = None if wanted.expires_in_s is None else clock.now_s() + wanted.expires_in_s
    account = None if wanted.account is None else token_account(wanted.account)
    token, secret = await asyncio.to_thread(
        access.create, wanted.name, AccessRole(wanted.role), tuple(wanted.tenants), expires_s, caller.name, account
    )
    log.info("token-create", extra={"token": token.id, "holder": token.name, "who": caller.name})
    return JSONResponse({**_out(token), "token": secret}, status_code=201)


@router.get("/tokens")
async def listed(request: Request, caller: Caller) -> Response:
    """List all tokens and the sessions of users who have logged in, without secrets."""
    caller.must_be_admin()
    return JSONResponse([_out(token) for token in service(request).access.all()])


@router.delete("/tokens/{token_id}")
async def revoke(request: Request, caller: Caller, token_id: Annotated[str, Path(max_length=32)]) -> Response:
    """Revoke a token, or end a session; its streams and pages end within a second."""
    caller.must_be_admin()
    revoked = await asyncio.to_thread(service(request).access.revoke, token_id, caller.name)
    if revoked is None:
        raise NotFound(f"there is no token {token_id!r}")
    log.info("token-revoke", extra={"token": revoked.id, "who": caller.name})
    return JSONResponse(_out(revoked))


def _out(token: StoredToken) -> dict[str, Any]:
    return {
        "id": token.id,
        "kind": "session" if token.is_session else "token",
        "name": token.name,
        "role": token.role,
        "tenants": list(token.tenants),
        "created": moment(token.created_s),
        "expires": moment(token.expires_s),
        "revoked": moment(token.revoked_s),
        "account": token.account,
    }
