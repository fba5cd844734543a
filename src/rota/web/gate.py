"""Access control in front of the dashboard: known paths, same-origin requests and logged-in visitors only.

NiceGUI is imported by the first request that needs it, so that it does not slow down the start of a manager.
"""

from __future__ import annotations

import asyncio
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from rota.api.access import Unknown, digest_of, is_local
from rota.api.limits.asgi import Asgi, Message, Receive, Send
from rota.api.service import Service
from rota.web.login import login_page
from rota.web.sessions import COOKIE, LIFETIME_S, Sessions, Visitor

PAGES = ("/", "/jobs", "/cluster", "/tenants", "/what-if", "/submit", "/audit-log")
ASSETS = ("/_nicegui", "/_rota", "/favicon.ico")
MAX_LOGIN_BYTES = 4096
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
        elif refusal is None and path in ("/login", "/logout"):
            refusal = await self._log_in_or_out(Request(scope, receive))
        send_with_headers = _with_headers(send)
        if refusal is not None:
            await refusal(scope, receive, send_with_headers)
            return
        await (await self._pages())(scope, receive, send_with_headers)

    def _visitor(self, scope: Any) -> Visitor:
        try:
            cookies = SimpleCookie(Headers(scope=scope).get("cookie", ""))
        except CookieError:
            cookies = SimpleCookie()
        session = cookies[COOKIE].value if COOKIE in cookies else ""
        return Visitor(self._service.access, self._sessions, session)

    def _refusal(self, scope: Any, path: str, visitor: Visitor) -> Response | None:
        """Return the response that refuses the request, or None if it is allowed."""
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._service.access.required and not is_local(host):
            return JSONResponse({"error": "this manager accepts requests from this machine only"}, status_code=403)
        if origin is not None and urlsplit(origin).netloc != host:
            return JSONResponse({"error": "cross-origin requests are not allowed"}, status_code=403)
        if path in ("/login", "/logout"):
            return None
        if path.startswith(ASSETS):
            is_socket = path.startswith("/_nicegui_ws")
            return (
                JSONResponse({"error": "not logged in"}, status_code=401)
                if is_socket and not visitor.is_known()
                else None
            )
        if path not in PAGES and not path.startswith("/jobs/"):
            return JSONResponse({"error": "no such page"}, status_code=404)
        if scope["method"] not in ("GET", "HEAD"):
            return JSONResponse({"error": "pages accept GET and HEAD only"}, status_code=405)
        return None if visitor.is_known() else RedirectResponse("/login", status_code=303)

    async def _log_in_or_out(self, request: Request) -> Response:
        visitor: Visitor = request.scope["rota.visitor"]
        if request.url.path == "/logout":
            if request.method != "POST":
                return RedirectResponse("/", status_code=303)
            self._sessions.close(visitor.session)
            logged_out = RedirectResponse("/login", status_code=303)
            logged_out.delete_cookie(COOKIE)
            return logged_out
        if request.method != "POST":
            return RedirectResponse("/", status_code=303) if visitor.is_known() else HTMLResponse(login_page())
        form = parse_qs((await request.body())[:MAX_LOGIN_BYTES].decode("utf-8", "replace"))
        token_digest = digest_of(form.get("token", [""])[0].strip())
        try:
            self._service.access.holder(token_digest)
        except Unknown as error:
            return HTMLResponse(login_page(str(error)), status_code=401)
        logged_in = RedirectResponse("/", status_code=303)
        logged_in.set_cookie(
            COOKIE,
            self._sessions.open(token_digest),
            max_age=int(LIFETIME_S),
            httponly=True,
            samesite="lax",
            secure=request.url.scheme == "https",
        )
        return logged_in

    async def _pages(self) -> Asgi:
        async with self._loading:
            if self._site is None:
                module = await asyncio.to_thread(_load)
                self._site = await module.open_site(self._service)
        return self._site


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
