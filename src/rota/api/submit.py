"""POST /jobs, the route that has to be fast: it parses the request itself and bypasses FastAPI.

FastAPI's routing and parameter handling cost as much as the rest of a submission. The application therefore mounts this
function as a plain route; FastAPI's route exists for the schema, which is written by hand.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from rota.api.service import service
from rota.api.wire import PROBLEMS, SubmitOut, forecast_out, reason_out
from rota.core.errors import RotaError
from rota.files.job_shape import name_of
from rota.files.json_input import parse_json
from rota.live.intake.submission_limits import MOST_AT_ONCE, Allowance

router = APIRouter(tags=["jobs"], responses=PROBLEMS)
MAX_KEY = 200
LARGE_BODY = 64 << 10
"""Bytes from which on parsing a body may take milliseconds."""
_YES = frozenset({"true", "1", "yes", "on"})
_NO = frozenset({"false", "0", "no", "off"})
_JOB = {"$ref": "#/components/schemas/JobFile"}
_OPERATION: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"oneOf": [_JOB, {"type": "array", "minItems": 1, "items": _JOB}]}},
        },
    },
    "parameters": [
        {
            "name": "idempotency-key",
            "in": "header",
            "description": "A repeated request with the same key gets the same answer.",
            "schema": {"type": "string", "maxLength": MAX_KEY},
        },
        {
            "name": "held",
            "in": "query",
            "description": "Keep the job from starting until it is released.",
            "schema": {"type": "boolean", "default": False},
        },
        {
            "name": "dry_run",
            "in": "query",
            "description": "Only forecast the start of one job; submit nothing.",
            "schema": {"type": "boolean", "default": False},
        },
    ],
}


@router.post("/jobs", status_code=201, response_model=SubmitOut, openapi_extra=_OPERATION)
async def submit(request: Request) -> Response:
    """Submit a job, or a list of jobs that are accepted together or not at all."""
    parts = service(request)
    caller = parts.access.authenticate(request)
    held, dry_run = _flag(request, "held"), _flag(request, "dry_run")
    key = request.headers.get("idempotency-key")
    if key is not None and len(key) > MAX_KEY:
        raise RotaError(f"idempotency-key: it has {len(key)} characters; the maximum is {MAX_KEY}")
    values = await _parsed(await request.body(), parts.large_bodies)
    files: list[Any] = values if isinstance(values, list) else [values]
    if not files:
        raise RotaError("the list has no jobs; give at least one")
    Allowance(parts.call_limits.jobs_at_once if parts.access.required else MOST_AT_ONCE).refuse_more(len(files))
    default = caller.default_tenant
    if default != "default":
        files = [{"tenant": default, **file} if isinstance(file, dict) else file for file in files]
    for file in files:
        tenant = _tenant(file, default)
        caller.must_change(tenant)
        parts.must_exist(tenant)
    asker = caller.asker
    if dry_run:
        if len(files) > 1:
            raise RotaError(f"dry_run: it tries one job; these are {len(files)}")
        found = await parts.requests.try_out(files[0], asker)
        why = None if found.usual_s is not None else await parts.requests.obstacle(files[0], asker)
        return JSONResponse({"expected": forecast_out(found), "reason": reason_out(why)})
    scoped_key = None if key is None else f"{caller.name}:{key}"
    ids = await parts.requests.submit(files, asker, key=scoped_key, held=held)
    return JSONResponse({"id": ids[0], "ids": ids}, status_code=201, headers={"Location": f"/api/v1/jobs/{ids[0]}"})


async def _parsed(body: bytes, one_large: asyncio.Lock) -> object:
    """Parse a body; large ones one after the other, each with as long a pause, in which others are served."""
    if len(body) < LARGE_BODY:
        return parse_json(body)
    async with one_large:
        begun_s = time.perf_counter()
        try:
            return parse_json(body)
        finally:
            await asyncio.sleep(time.perf_counter() - begun_s)


def _tenant(file: object, default: str) -> str:
    """The tenant of a job file; raises a `RotaError` for what is no name."""
    found = file.get("tenant", default) if isinstance(file, dict) else default
    try:
        return str(name_of(found))
    except ValueError as error:
        raise RotaError(f"job: tenant: {error}") from error


def _flag(request: Request, name: str) -> bool:
    if not request.scope["query_string"]:
        return False
    word = request.query_params.get(name, "false").lower()
    if word not in _YES | _NO:
        raise RotaError(f"{name}: {word[:40]!r} is not true or false")
    return word in _YES
