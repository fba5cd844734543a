"""A terminal in the browser: a shell beside a task, over a WebSocket with the rights of the page's session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import FastAPI
from nicegui import html
from nicegui.element import Element
from nicegui.elements import xterm
from starlette.websockets import WebSocket

from rota.api.interactive.routes import refuse, serve_session
from rota.api.service import Service
from rota.core.errors import RotaError, Unavailable
from rota.web.parts.basics import button, card
from rota.web.sessions import Visitor

_XTERM = Path(xterm.__file__).parent / "dist"
"""xterm.js (MIT licence), as NiceGUI brings it along."""


class ShellTerminal(Element, component="terminal.js", esm={"nicegui-xterm": str(_XTERM)}):
    """A shell beside a task, in a terminal that fills its place."""

    def __init__(self, job_id: str) -> None:
        super().__init__()
        self.add_resource(_XTERM)
        self.props["path"] = f"/jobs/{job_id}/session?mode=exec"


class TerminalCard:
    """A card that opens a terminal while the job runs."""

    def __init__(self, job_id: str) -> None:
        self._id = job_id
        self._whole = html.div().classes("wide")
        with self._whole, card("Terminal", "a shell beside the first task"):
            self._place = html.div()
            self._button = button("Open a shell", "terminal")
            self._button.on_click(self._open)
        self._whole.set_visibility(False)
        self._is_open = False

    def _open(self) -> None:
        self._place.clear()
        with self._place:
            ShellTerminal(self._id).on("ended", self._ended)
        self._is_open = True
        self._button.set_visibility(False)

    def _ended(self) -> None:
        """Let what was said stay, and offer another one."""
        self._is_open = False
        self._button.set_visibility(True)

    def show(self, row: Any) -> None:
        """Show it while the job runs, and as long as its last words are to be read."""
        self._whole.set_visibility(row.state == "running" or self._is_open)


def add_session_route(app: FastAPI, service: Service) -> None:
    """Let visitors open sessions in tasks, with the rights of their login."""

    @app.websocket("/jobs/{job_id}/session")
    async def session(websocket: WebSocket, job_id: str) -> None:
        visitor = websocket.scope["rota.visitor"]
        assert isinstance(visitor, Visitor)
        try:
            await serve_session(websocket, service, visitor.principal(), job_id[:64], visitor.principal)
        except (RotaError, Unavailable) as error:
            await refuse(websocket, error)
