"""Routes to log in and out: for the command line, and for programs that act for a user."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from rota.api.access import Principal, digest_of
from rota.api.guard.bearer import bearer
from rota.api.service import principal, service
from rota.api.wire import Problem, moment
from rota.live.intake.requests import NotFound
from rota.store.tokens import StoredToken

router = APIRouter(tags=["login"], responses={code: {"model": Problem} for code in (401, 403, 404, 422, 429)})
Caller = Annotated[Principal, Depends(principal)]


class PasswordLogin(BaseModel):
    """A login with a user name and a password."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=128)]
    password: Annotated[str, Field(min_length=1, max_length=1024)]
    device: Annotated[str, Field(max_length=200)] = ""
    """The mark that the user's last login with this device returned."""


class DevicePoll(BaseModel):
    """The question whether a login on another device is confirmed."""

    model_config = ConfigDict(extra="forbid")

    handle: Annotated[str, Field(min_length=1, max_length=200)]


def source_of(request: Request) -> str:
    """Return the address of a request."""
    return request.client.host if request.client is not None else "-"


@router.get("/login")
async def ways(request: Request) -> Response:
    """Say how users can log in: whether there are local users, and the provider of single sign-on."""
    logins = service(request).logins
    return JSONResponse(
        {"required": service(request).access.required, "users": logins.has_users, "oidc": logins.issuer}
    )


@router.post("/login", status_code=201)
async def log_in(request: Request, wanted: PasswordLogin) -> Response:
    """Log in as a local user; only this response contains the session's secret."""
    request.state.claimed = wanted.name
    logins = service(request).logins
    opened = await logins.log_in_user(wanted.name, wanted.password, source_of(request), wanted.device)
    return JSONResponse({**_opened(*opened), "device": logins.new_mark(wanted.name)}, status_code=201)


@router.post("/login/device", status_code=201)
async def begin_device(request: Request) -> Response:
    """Begin a login by single sign-on on another device."""
    logins = service(request).logins
    await logins.pause(source_of(request))
    return JSONResponse(await logins.begin_device(), status_code=201)


@router.post("/login/device/poll")
async def poll_device(request: Request, asked: DevicePoll) -> Response:
    """Ask whether a login is confirmed: 202 until then, and then the session."""
    opened = await service(request).logins.poll_device(asked.handle, source_of(request))
    if opened is None:
        return JSONResponse({"state": "pending"}, status_code=202)
    return JSONResponse(_opened(*opened), status_code=201)


@router.post("/logout")
async def log_out(request: Request, caller: Caller) -> Response:
    """End the session of the request; a token that an admin created stays valid."""
    digest = digest_of(bearer(request.headers.get("authorization", "")))
    await service(request).logins.log_out(digest, caller.name)
    return JSONResponse({"state": "logged out"})


@router.delete("/identities/{name}")
async def release(request: Request, caller: Caller, name: Annotated[str, Path(max_length=128)]) -> Response:
    """Let another account use a name that a user's first login has taken; for admins."""
    caller.must_be_admin()
    if not await service(request).logins.release(name, caller.name):
        raise NotFound(f"the name {name!r} belongs to no account")
    return JSONResponse({"name": name})


@router.get("/whoami")
async def whoami(request: Request, caller: Caller) -> Response:
    """Return the caller's name, role and tenants."""
    tenants = None if caller.tenants is None else sorted(caller.tenants)
    return JSONResponse({"name": caller.name, "role": caller.role.value, "tenants": tenants})


def _opened(session: StoredToken, secret: str) -> dict[str, Any]:
    return {
        "id": session.id,
        "name": session.name,
        "role": session.role,
        "tenants": list(session.tenants),
        "expires": moment(session.expires_s),
        "token": secret,
    }
