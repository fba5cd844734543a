"""Refuses requests that pages of other sites send with a user's browser."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, JSONResponse, Response

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
FOREIGN = frozenset({"cross-site", "same-site"})
"""Values of Sec-Fetch-Site for pages of other origins; `same-site` includes other ports and sibling hosts."""
RETURNS = "/login/callback"
"""Where an identity provider sends the browser back to: another site by design, protected by its state."""
_ASK = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Rota</title>
<link rel="stylesheet" href="/_rota/style.css"></head><body class="login"><main class="card login-card">
<h1 class="brand"><span class="brand-mark" aria-hidden="true"></span>Rota</h1>
<p>Another site linked to this page.</p>
<p><a class="text-link" href="{path}">Open {path}</a></p></main></body></html>"""
NO_SCRIPTS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
}
"""Headers of pages that need no script."""


class SameSite:
    """Refuses requests of other sites that change something or carry a cookie; links ask the user first."""

    def __init__(self, app: Callable[[Any, Any, Any], Any]) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer or forward one request."""
        refusal = _refusal(scope) if scope["type"] in ("http", "websocket") else None
        if refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await refusal(scope, receive, send)


def _refusal(scope: Any) -> Response | None:
    headers = Headers(scope=scope)
    is_socket = scope["type"] == "websocket"
    changes = is_socket or scope["method"] not in SAFE_METHODS
    foreign_origin = "origin" in headers and is_foreign(headers["origin"], headers.get("host", ""))
    site = headers.get("sec-fetch-site", "")
    path = scope["path"]
    if (changes and foreign_origin) or (
        site in FOREIGN and (changes or _is_embedded(headers) or path.startswith(("/api/v1", "/metrics")))
    ):
        return JSONResponse({"error": "requests of other sites are not allowed"}, status_code=403)
    if site in FOREIGN and not path.startswith("/api/") and path != RETURNS:
        return HTMLResponse(_ASK.format(path=escape(_own(path, scope["query_string"]))), headers=NO_SCRIPTS)
    return None


def _own(path: str, query: bytes) -> str:
    """Return a link to a page of this site; one that a browser would take for another host leads to the first page."""
    if path.startswith(("//", "/\\")):
        return "/"
    asked = query.decode("latin-1")
    return quote(path) + (f"?{quote(asked, safe='=&%+,.-_~')}" if asked else "")


def _is_embedded(headers: Headers) -> bool:
    """Whether a safe request carries a cookie and is not a navigation of the user: a script, an image or a frame."""
    is_navigation = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return "cookie" in headers and not is_navigation


def is_foreign(origin: str, host: str) -> bool:
    """Whether an Origin header names another host or port than the Host header; `null` is foreign."""
    return urlsplit(origin).netloc != host
