"""The application: all routes, errors as one JSON line each, bodies of bounded size."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import DBAPIError
from starlette.requests import ClientDisconnect
from starlette.routing import Route

from rota import __version__
from rota.api import (
    cluster,
    docs_page,
    estimates,
    jobs,
    logs,
    metrics,
    submit,
    system,
    truth,
)
from rota.api.access import Forbidden, Unknown
from rota.api.accounts import budgets as budget_routes
from rota.api.accounts import usage as usage_routes
from rota.api.admin import audit, reservations, tenants, tokens
from rota.api.alerts import routes as alert_routes
from rota.api.data import artefacts, data_sets, search, snapshots
from rota.api.data import templates as job_templates
from rota.api.gpu import routes as gpu_routes
from rota.api.guard.cross_site import SameSite
from rota.api.guard.refusals import NotedRefusals
from rota.api.guard.same_user import SameUser
from rota.api.guard.stream_watch import EndedStreams
from rota.api.identity import routes as login_routes
from rota.api.identity.attempts import TooManyLogins
from rota.api.interactive import routes as session_routes
from rota.api.limits.asgi import Asgi, Message, Pages, Receive, Send
from rota.api.limits.callers import FairRequests
from rota.api.log import LoggedRequests
from rota.api.proxy import routes as proxy_routes
from rota.api.proxy.entrance import JobHosts, ProxyEntrance
from rota.api.service import Service
from rota.api.sweeps import routes as sweep_routes
from rota.core.errors import RotaError, Unavailable
from rota.files.job_shape import JobFile
from rota.live.intake.quotas import TooMany
from rota.live.intake.requests import Conflict, NotFound, Outdated
from rota.live.loop.storage import CantStore

MAX_BODY = 4 << 20
_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (Unknown, 401),
    (Forbidden, 403),
    (NotFound, 404),
    (Conflict, 409),
    (TooManyLogins, 429),
    (Outdated, 412),
    (TooMany, 429),
    (CantStore, 507),
    (RotaError, 422),
    (Unavailable, 503),
)


def make_app(service: Service, pages: Pages | None = None) -> FastAPI:
    """Build the API of a manager; `pages` answers requests outside of the API."""
    app = FastAPI(title="Rota", version=__version__, docs_url=None, redoc_url=None, openapi_url="/api/openapi.json")
    app.state.service = service
    app.router.routes.append(Route("/api/v1/jobs", submit.submit, methods=["POST"]))
    app.include_router(submit.router, prefix="/api/v1")
    app.include_router(jobs.router, prefix="/api/v1")
    app.include_router(sweep_routes.router, prefix="/api/v1")
    app.include_router(usage_routes.router, prefix="/api/v1")
    app.include_router(budget_routes.router, prefix="/api/v1")
    app.include_router(alert_routes.router, prefix="/api/v1")
    app.include_router(logs.router, prefix="/api/v1")
    app.include_router(session_routes.router, prefix="/api/v1")
    app.include_router(proxy_routes.router, prefix="/api/v1")
    app.include_router(artefacts.router, prefix="/api/v1")
    app.include_router(snapshots.router, prefix="/api/v1")
    app.include_router(job_templates.router, prefix="/api/v1")
    app.include_router(data_sets.router, prefix="/api/v1")
    app.include_router(search.router, prefix="/api/v1")
    app.include_router(estimates.router, prefix="/api/v1")
    app.include_router(gpu_routes.router, prefix="/api/v1")
    app.include_router(system.router, prefix="/api/v1")
    app.include_router(cluster.router, prefix="/api/v1")
    app.include_router(tenants.router, prefix="/api/v1")
    app.include_router(reservations.router, prefix="/api/v1")
    app.include_router(tokens.router, prefix="/api/v1")
    app.include_router(truth.router, prefix="/api/v1")
    app.include_router(audit.router, prefix="/api/v1")
    app.include_router(login_routes.router, prefix="/api/v1")
    app.include_router(docs_page.router)
    app.include_router(system.probes)
    app.include_router(metrics.router)
    app.add_exception_handler(RotaError, _refuse)
    app.add_exception_handler(Unavailable, _refuse)
    app.add_exception_handler(DBAPIError, _refuse_unstored)
    app.add_exception_handler(RequestValidationError, _refuse_shape)
    app.add_middleware(BoundedBody)
    app.add_middleware(
        FairRequests,
        limits=service.call_limits,
        token_required=service.access.required,
        is_valid=service.access.is_valid,
        of_session=(lambda scope: None) if pages is None else pages.token_digest,
    )
    app.add_middleware(EndedStreams, service=service)
    app.add_middleware(SameSite)
    if (jobs_pages := _job_pages(app, service, pages)) is not None:
        app.add_middleware(JobHosts, entrance=jobs_pages)
    if not service.access.required:
        app.add_middleware(SameUser)
    app.add_middleware(NotedRefusals, service=service)
    app.add_middleware(LoggedRequests)
    _describe_job_files(app)
    if pages is not None:
        app.mount("/", pages)
    return app


def _job_pages(app: FastAPI, service: Service, pages: Pages | None) -> ProxyEntrance | None:
    """Add the way to web servers in jobs, where jobs are processes of this manager."""
    if service.proxy is None:
        return None
    entrance = ProxyEntrance(service, service.proxy, pages)
    app.mount("/proxy", entrance)
    return entrance


def _describe_job_files(app: FastAPI) -> None:
    """Add the job file to the schema, as submissions bypass FastAPI's parsing."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        schema = generate()
        parts = schema["components"]["schemas"]
        if "JobFile" not in parts:
            shape = JobFile.model_json_schema(ref_template="#/components/schemas/{model}")
            parts.update(shape.pop("$defs", {}))
            parts["JobFile"] = shape
        return schema

    app.openapi = openapi  # type: ignore[method-assign]  # as documented by FastAPI


async def _refuse(request: Request, error: Exception) -> JSONResponse:
    status = next(code for kind, code in _STATUS if isinstance(error, kind))
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    if isinstance(error, TooMany | TooManyLogins):
        headers = {"Retry-After": str(error.retry_s)}
    return JSONResponse({"error": " ".join(str(error).split())}, status_code=status, headers=headers)


async def _refuse_unstored(request: Request, error: Exception) -> JSONResponse:
    """Answer a request that the database failed: what reads may try again, what writes was not stored."""
    assert isinstance(error, DBAPIError)
    service: Service = request.app.state.service
    service.control.storage.fails(error)
    why = f"the database can't be used now: {' '.join(str(error.orig).split())}; try again later"
    return JSONResponse({"error": why}, status_code=503 if request.method in ("GET", "HEAD") else 507)


async def _refuse_shape(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:]) or "the body"
    return JSONResponse({"error": f"{field}: {first['msg'].lower()}"}, status_code=422)


class TooLarge(Exception):
    """A request body exceeds its limit."""


class BoundedBody:
    """Refuses bodies over the limit before they fill the memory, with or without a Content-Length."""

    def __init__(self, app: Asgi) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Forward a request while counting the bytes of its body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 12 or int(length) > MAX_BODY:
            await _too_large(scope, receive, send)
            return
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            error = "content-encoding: bodies are taken as they are; send it without compression"
            await JSONResponse({"error": error}, status_code=415)(scope, receive, send)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > MAX_BODY:
                raise TooLarge
            return message

        try:
            await self._app(scope, counted, send)
        except TooLarge:
            await _too_large(scope, receive, send)
        except ClientDisconnect:  # there is no one left to answer
            return


async def _too_large(scope: Any, receive: Receive, send: Send) -> None:
    answer = JSONResponse({"error": f"the body is larger than {MAX_BODY >> 20} MiB"}, status_code=413)
    await answer(scope, receive, send)
