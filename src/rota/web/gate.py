"""Access control in front of the dashboard: known paths, same-origin requests and logged-in visitors only.

NiceGUI is imported by the first request that needs it, so that it does not slow down the start of a manager.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from rota.api.access import Principal, is_local
from rota.api.guard.cross_site import is_foreign
from rota.api.limits.asgi import Asgi, Message, Receive, Send
from rota.api.service import Service
from rota.web.login_requests import LOGIN_PATHS, LoginRequests
from rota.web.sessions import COOKIE, SECURE_COOKIE, Sessions, Visitor

PAGES = (
    *("/", "/home", "/jobs", "/compare", "/sweeps", "/cluster", "/timeline", "/network", "/tenants", "/usage"),
    *("/alerts", "/what-if", "/truth", "/submit", "/templates", "/data-sets", "/audit-log"),
)
ASSETS = ("/_nicegui", "/_rota", "/favicon.ico")
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; connect-src 'self'; "
    "worker-src 'self' blob:; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
}


class Gate:
    """The dashboard as an ASGI application."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._sessions = Sessions()
        self._logins = LoginRequests(service, self._sessions)
        self._site: Asgi | None = None
        self._loading = asyncio.Lock()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer one request, or forward it to the pages."""
        path = scope["path"]
        scope["rota.visitor"] = visitor = self._visitor(scope)
        refusal = self._refusal(scope, path, visitor)
        if scope["type"] == "websocket":
            if refusal is not None:
                await send({"type": "websocket.close", "code": 1008})
                return
        elif refusal is None and path in LOGIN_PATHS:
            refusal = await self._logins.answer(Request(scope, receive))
        send_with_headers = _with_headers(send)
        if refusal is None and not visitor.session and _is_page(path) and not self._service.access.required:
            send_with_headers = self._with_name(scope, send_with_headers)
        if refusal is not None:
            await refusal(scope, receive, send_with_headers)
            return
        await (await self._pages())(scope, receive, send_with_headers)

    def _visitor(self, scope: Any) -> Visitor:
        try:
            cookies = SimpleCookie(Headers(scope=scope).get("cookie", ""))
        except CookieError:
            cookies = SimpleCookie()
        name = SECURE_COOKIE if self._logins.is_secure(HTTPConnection(scope)) else COOKIE
        session = cookies[name].value if name in cookies else ""
        return Visitor(self._service.access, self._sessions, session)

    def token_digest(self, scope: Any) -> str | None:
        """Return the digest of the token that the session of a request was opened with; None without a session."""
        return self._visitor(scope).token_digest()

    def holder(self, scope: Any) -> Callable[[], Principal] | None:
        """Return what finds the visitor's principal with its present rights; None for a request without a login."""
        visitor = self._visitor(scope)
        if not self._service.access.required and not is_local(Headers(scope=scope).get("host", "")):
            return None
        return visitor.principal if visitor.is_known() else None

    def _with_name(self, scope: Any, send: Send) -> Send:
        """Give a browser that needs no login a session's name: its pages then belong to it alone."""
        name = secrets.token_urlsafe(32)
        scope["rota.visitor"] = Visitor(self._service.access, self._sessions, name)

        async def send_with_name(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).append(
                    "set-cookie", f"{COOKIE}={name}; HttpOnly; Path=/; SameSite=strict"
                )
            await send(message)

        return send_with_name

    def _refusal(self, scope: Any, path: str, visitor: Visitor) -> Response | None:
        """Return the response that refuses the request, or None if it is allowed."""
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._service.access.required and not is_local(host):
            return JSONResponse({"error": "this manager accepts requests from this machine only"}, status_code=403)
        if origin is not None and is_foreign(origin, host):
            return JSONResponse({"error": "cross-origin requests are not allowed"}, status_code=403)
        if path in LOGIN_PATHS:
            return None
        if path.startswith(ASSETS):
            is_socket = path.startswith("/_nicegui_ws")
            return (
                JSONResponse({"error": "not logged in"}, status_code=401)
                if is_socket and not visitor.is_known()
                else None
            )
        if scope["type"] == "websocket":
            return self._socket_refusal(path, origin, visitor)
        if not _is_page(path):
            return JSONResponse({"error": "no such page"}, status_code=404)
        if scope["method"] not in ("GET", "HEAD"):
            return JSONResponse({"error": "pages accept GET and HEAD only"}, status_code=405)
        if visitor.is_known():
            return None
        return RedirectResponse("/login" if path == "/" else f"/login?next={quote(path, safe='')}", status_code=303)

    def _socket_refusal(self, path: str, origin: str | None, visitor: Visitor) -> Response | None:
        """Return the refusal of a socket beside the pages' own: sessions in tasks, for this site's pages only."""
        if not (path.startswith("/jobs/") and path.endswith("/session")):
            return JSONResponse({"error": "no such page"}, status_code=404)
        if origin is None or not visitor.is_known():
            return JSONResponse({"error": "not logged in"}, status_code=401)
        return None

    async def _pages(self) -> Asgi:
        async with self._loading:
            if self._site is None:
                module = await asyncio.to_thread(_load)
                self._site = await module.open_site(self._service)
        return self._site


def _is_page(path: str) -> bool:
    return path in PAGES or path.startswith(("/jobs/", "/sweeps/"))


def _load() -> Any:
    from rota.web import site

    return site


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
        await send(message)

    return send_with_headers
