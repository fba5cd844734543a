"""The files that a job wrote, and the code that it ran: a table with links, and the route behind them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse
from nicegui import html

from rota.api.access import Forbidden
from rota.api.data.artefacts import artefact
from rota.api.service import Service
from rota.core.errors import RotaError
from rota.live.intake.requests import NotFound
from rota.store.data.artefacts import Listing
from rota.web import words
from rota.web.sessions import Visitor

SHOWN = 200
UNITS = ("B", "KiB", "MiB", "GiB")


def show_files(job_id: str, found: Listing, origin: dict[str, Any] | None) -> None:
    """Show files with a link to each; `origin` is the snapshot of a job file."""
    if origin is not None:
        html.p(_code(origin)).classes("muted").props('data-testid="origin"')
    if not found.files:
        html.p("No files yet. Jobs write those to keep to $ROTA_RUN_DIR.").classes("muted")
        return
    with html.table().classes("table").props('aria-label="Files"'):
        with html.thead(), html.tr():
            for title in ("File", "Size", "Changed"):
                html.th(title).props("scope=col")
        with html.tbody():
            for each in found.files[:SHOWN]:
                with html.tr():
                    with html.td():
                        html.a(each.path, href=f"/jobs/{job_id}/files/{quote(each.path)}").props("download")
                    html.td(size_text(each.size))
                    html.td(words.ago(each.modified_s))
    if found.is_cut or len(found.files) > SHOWN:
        html.p(f"The first {min(len(found.files), SHOWN)} files; `rota get {job_id}` lists more.").classes("muted")
    if found.left_out:
        html.p(f"{found.left_out} links and special files are left out.").classes("muted")


def _code(origin: dict[str, Any]) -> str:
    parts = [f"Code: snapshot {origin['digest'][:12]}"]
    if origin.get("commit"):
        parts.append(f"commit {origin['commit'][:12]}" + (" with changes" if origin.get("dirty") else ""))
    if origin.get("branch"):
        parts.append(f"branch {origin['branch']}")
    return ", ".join(parts)


def size_text(count: float) -> str:
    """A number of bytes as people read it."""
    for unit in UNITS[:-1]:
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} {UNITS[-1]}"


def add_file_route(app: FastAPI, service: Service) -> None:
    """Let visitors fetch files, with the rights of their session."""

    @app.get("/jobs/{job_id}/files/{path:path}")
    async def fetched(request: Request, job_id: str, path: str) -> Response:
        visitor = request.scope["rota.visitor"]
        assert isinstance(visitor, Visitor)
        try:
            return await artefact(service, visitor.principal(), job_id[:64], path)
        except NotFound as error:
            return PlainTextResponse(str(error), status_code=404)
        except Forbidden as error:
            return PlainTextResponse(str(error), status_code=403)
        except RotaError as error:
            return PlainTextResponse(str(error), status_code=401)
