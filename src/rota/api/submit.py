"""POST /jobs, the route that has to be fast: it reads what it is given itself, and is reached without FastAPI's help.

FastAPI's way to a route and its parameters costs as much as all the rest of a submission, so the application has the
same function as a plain route before it. FastAPI's own is there for the schema, which says by hand what it takes.
"""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from rota.api.service import service
from rota.api.wire import PROBLEMS, SubmitOut, forecast_out
from rota.core.errors import RotaError
from rota.live.loop.requests import MOST_AT_ONCE, Asker

router = APIRouter(tags=["jobs"], responses=PROBLEMS)
LONGEST_KEY = 200
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
            "description": "A repeated request with the same key gets the first one's answer.",
            "schema": {"type": "string", "maxLength": LONGEST_KEY},
        },
        {
            "name": "held",
            "in": "query",
            "description": "Keep it from starting until it is released.",
            "schema": {"type": "boolean", "default": False},
        },
        {
            "name": "dry_run",
            "in": "query",
            "description": "Only say when it would start.",
            "schema": {"type": "boolean", "default": False},
        },
    ],
}


@router.post("/jobs", status_code=201, response_model=SubmitOut, openapi_extra=_OPERATION)
async def submit(request: Request) -> Response:
    """Submit a job, or a list of jobs that are accepted together or not at all."""
    parts = service(request)
    who = parts.access.who(request)
    held, dry_run = _flag(request, "held"), _flag(request, "dry_run")
    key = request.headers.get("idempotency-key")
    if key is not None and len(key) > LONGEST_KEY:
        raise RotaError(f"idempotency-key: it has {len(key)} characters; {LONGEST_KEY} are the most")
    values = await _body(request)
    files: list[Any] = values if isinstance(values, list) else [values]
    if not 1 <= len(files) <= MOST_AT_ONCE:
        raise RotaError(f"{len(files)} jobs were given; submit 1 to {MOST_AT_ONCE} at once")
    usual = who.usual_tenant
    if usual != "default":
        files = [{"tenant": usual, **file} if isinstance(file, dict) else file for file in files]
    for file in files:
        who.must_change(str(file.get("tenant", usual)) if isinstance(file, dict) else usual)
    asker = Asker(name=who.name)
    if dry_run:
        return JSONResponse({"expected": forecast_out(await parts.requests.try_out(files[0], asker))})
    whole_key = None if key is None else f"{who.name}:{key}"
    ids = await parts.requests.submit(files, asker, key=whole_key, held=held)
    return JSONResponse({"id": ids[0], "ids": ids}, status_code=201, headers={"Location": f"/api/v1/jobs/{ids[0]}"})


def _flag(request: Request, name: str) -> bool:
    if not request.scope["query_string"]:
        return False
    word = request.query_params.get(name, "false").lower()
    if word not in _YES | _NO:
        raise RotaError(f"{name}: it is {word[:40]!r}; it must be true or false")
    return word in _YES


async def _body(request: Request) -> object:
    try:
        return json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        raise RotaError(f"the body is not JSON: {str(error)[:200]}") from error
