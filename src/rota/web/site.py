"""The dashboard's pages, assembled; imported by the first request for one of them."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from fastapi import FastAPI, Request

from rota.api.limits.asgi import Asgi
from rota.api.service import Service

os.environ.setdefault("NICEGUI_STORAGE_PATH", os.devnull)  # keep NiceGUI from writing files of its own

from nicegui import app as nicegui_app
from nicegui import context as nicegui_context
from nicegui import ui

from rota.live.workers.whatif import WhatIf
from rota.web.bound_pages import BoundPages
from rota.web.frame import frame
from rota.web.page_context import PageContext
from rota.web.pages import (
    alerts,
    audit,
    cluster,
    compare,
    data_sets,
    home,
    job,
    jobs,
    network,
    overview,
    submit,
    templates,
    tenants,
    timeline,
    truth,
    whatif,
)
from rota.web.parts.files import add_file_route
from rota.web.parts.terminal import add_session_route
from rota.web.sweeps import listing as sweeps
from rota.web.sweeps import page as sweep
from rota.web.usage import page as usage

BUILD_TIMEOUT_S = 20.0
"""How long building a page may take on a busy machine."""
STATIC = Path(__file__).with_name("static")
Build = Callable[[PageContext], Awaitable[None]]
PAGES: tuple[tuple[str, str, Build], ...] = (
    ("/", "Overview", overview.build),
    ("/home", "Home", home.build),
    ("/jobs", "Jobs", jobs.build),
    ("/compare", "Compare", compare.build),
    ("/jobs/{job_id}", "Job", job.build),
    ("/sweeps", "Sweeps", sweeps.build),
    ("/sweeps/{sweep_id}", "Sweep", sweep.build),
    ("/cluster", "Cluster", cluster.build),
    ("/timeline", "Timeline", timeline.build),
    ("/network", "Network", network.build),
    ("/tenants", "Tenants", tenants.build),
    ("/usage", "Usage", usage.build),
    ("/alerts", "Alerts", alerts.build),
    ("/what-if", "What-if", whatif.build),
    ("/truth", "Truth", truth.build),
    ("/submit", "Submit", submit.build),
    ("/templates", "Templates", templates.build),
    ("/data-sets", "Data sets", data_sets.build),
    ("/audit-log", "Audit log", audit.build),
)


async def open_site(service: Service) -> Asgi:
    """Return the pages of a manager, ready to serve."""
    what_if = WhatIf(service.records, service.scheduling)

    def context(request: Request) -> PageContext:
        return PageContext(service=service, what_if=what_if, request=request)

    bound = BoundPages(service.watch)
    for path, title, build in PAGES:
        _add(path, title, build, context, bound)
    add_file_route(nicegui_app, service)
    add_session_route(nicegui_app, service)
    nicegui_app.add_static_files("/_rota", STATIC, max_cache_age=3600)
    site = FastAPI(openapi_url=None)
    ui.run_with(
        site,
        title="Rota",
        favicon=STATIC / "favicon.svg",
        dark=None,
        tailwind=False,
        language="en-US",
        binding_refresh_interval=None,
        reconnect_timeout=10.0,
        show_welcome_message=False,
    )
    bound.guard()
    stack = AsyncExitStack()
    await stack.enter_async_context(site.router.lifespan_context(site))
    site.state.open = stack
    return site


def _add(path: str, title: str, build: Build, context_for: Callable[[Request], PageContext], bound: BoundPages) -> None:
    @ui.page(path, title=f"{title} · Rota", response_timeout=BUILD_TIMEOUT_S)
    async def page(request: Request) -> None:
        context = context_for(request)
        bound.bind(nicegui_context.client, context.visitor)
        with frame(context, path):
            await build(context)
