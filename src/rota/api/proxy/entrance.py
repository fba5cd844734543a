"""The way to a web server in a job: at an origin of its own for browsers, straight for callers with a token.

A page that a job serves may be hostile, and runs with the cookies of its origin. At the manager's own origin it could
act as its visitor. Each place therefore has a host name of its own, which the same listening socket serves. A visitor
with a login of the manager is sent there with a ticket that works once; a cookie of that host name alone then holds
the visit.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlencode

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response

from rota.api.access import OWNER, Forbidden, Unknown, digest_of
from rota.api.guard.bearer import token_of
from rota.api.guard.cross_site import FOREIGN, SAFE_METHODS, is_foreign
from rota.api.limits.asgi import Asgi, Pages, Receive, Send
from rota.api.proxy.forwarding import JobForwarding
from rota.api.proxy.headers import to_job
from rota.api.proxy.limits import TooFast
from rota.api.proxy.pages import arrival, refusal
from rota.api.proxy.places import BadPlace, ProxyPlace, place_of
from rota.api.proxy.visits import COOKIE, LIFETIME_S, SECURE_COOKIE, Holder, Visit
from rota.api.service import ProxyParts, Service
from rota.core.errors import RotaError, Unavailable
from rota.live.intake.requests import Conflict, NotFound

OPEN_PATH = "/_rota/open"
DIRECT = "rota-direct"
"""A header that pages of other sites can't send: by it, callers without a token say that they are no browser."""
AUDITED_S = 3600.0
_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (Unknown, 401),
    (Forbidden, 403),
    (NotFound, 404),
    (BadPlace, 404),
    (Conflict, 409),
    (Unavailable, 502),
    (RotaError, 422),
)


class ProxyEntrance:
    """The requests for web servers in jobs; called for those at the manager's own address."""

    def __init__(self, service: Service, proxy: ProxyParts, pages: Pages | None) -> None:
        self._service = service
        self._pages = pages
        self._proxy = proxy
        self._forwarder = JobForwarding(service)
        self._audited: dict[tuple[str, ProxyPlace], float] = {}

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer a request for `/proxy/JOB/PORT/...`."""
        await self._guarded(self._at_manager, scope, receive, send, Headers(scope=scope))

    def label(self, scope: Any) -> str | None:
        """Return the label of the place whose host a request is for; None for all other hosts."""
        names = self._proxy.names
        return None if names is None else names.label_in(Headers(scope=scope).get("host", ""))

    async def at_host(self, label: str, scope: Any, receive: Receive, send: Send) -> None:
        """Answer a request at the host of a place."""
        await self._guarded(self._at_job, scope, receive, send, label, Headers(scope=scope))

    async def _guarded(self, serve: Callable[..., Any], scope: Any, receive: Receive, send: Send, *given: Any) -> None:
        """Serve a request; what goes wrong before an answer has begun is told as one."""
        headers = Headers(scope=scope)
        try:
            answer = await serve(scope, receive, send, *given)
        except TooFast as error:
            answer = refusal("too many requests to jobs; try again", 429, is_page=False)
            answer.headers["Retry-After"] = str(max(math.ceil(error.retry_s), 1))
        except (RotaError, Unavailable) as error:
            status = next(code for kind, code in _STATUS if isinstance(error, kind))
            answer = refusal(" ".join(str(error).split()), status, is_page=_is_navigation(scope, headers))
        if answer is None:
            return
        if scope["type"] == "websocket":
            await _deny(answer, scope, receive, send)
        else:
            await answer(scope, receive, send)

    # -- at the manager's own address ------------------------------------------------------------

    async def _at_manager(self, scope: Any, receive: Receive, send: Send, headers: Headers) -> Response | None:
        access = self._service.access
        place, rest = place_of(scope["path"])
        token = token_of(scope)
        if token or (not access.required and DIRECT in headers):
            caller = access.authenticate(HTTPConnection(scope))
            digest = digest_of(token) if token else ""
            holder: Holder = (lambda: access.holder(digest)) if digest else (lambda: OWNER)
            await self._note(place, holder, f"token {digest}", caller.name)
            await self._forward(scope, receive, send, place, holder, f"token {digest}", direct=True)
            return None
        found = None if self._pages is None else self._pages.holder(scope)
        if found is None:
            if _is_navigation(scope, headers):
                return RedirectResponse(f"/login?next={quote(scope['path'], safe='')}", status_code=303)
            raise Unknown("this needs a login, or a token: 'Authorization: Bearer TOKEN'")
        if scope["type"] == "websocket" or scope["method"] not in ("GET", "HEAD"):
            raise Forbidden("open this address in a browser's window; it leads to the page of the job")
        return await self._send_there(scope, headers, place, rest, found)

    async def _send_there(self, scope: Any, headers: Headers, place: ProxyPlace, rest: str, holder: Holder) -> Response:
        names = self._proxy.names
        if names is None:
            raise Conflict(
                "this manager has no domain for pages of jobs: set proxy_domain (rota up --proxy-domain), "
                f"or use `rota port-forward {place.job_id} {place.port or 'PORT'}`"
            )
        await self._forwarder.running(place, holder)
        caller = holder()
        label = names.label(place)
        ticket = self._proxy.visits.new_ticket(place, label, holder, f"pages {caller.name}")
        query = scope["query_string"].decode("latin-1")
        target = quote(rest, safe="/~@:!$&'()*+,;=%") + (f"?{query}" if query else "")
        asked = urlencode({"ticket": ticket, "next": target})
        origin = names.origin(place, self._scheme(scope), headers.get("host", ""))
        return RedirectResponse(
            f"{origin}{OPEN_PATH}?{asked}",
            status_code=303,
            headers={"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"},
        )

    def _scheme(self, scope: Any) -> str:
        is_secure = scope["scheme"] in ("https", "wss") or self._service.logins.public_url.startswith("https://")
        return "https" if is_secure else "http"

    # -- at the host of a place ------------------------------------------------------------------

    async def _at_job(self, scope: Any, receive: Receive, send: Send, label: str, headers: Headers) -> Response | None:
        is_page = _is_navigation(scope, headers)
        if scope["path"] == OPEN_PATH and scope["type"] == "http":
            return await self._begin_visit(Request(scope), label)
        if reason := _foreign(scope, headers):
            if is_page and scope["method"] in ("GET", "HEAD"):
                return self._ask(label, headers, scope)
            return refusal(reason, 403, is_page=False)
        visit = self._visit(scope, headers, label)
        if visit is None:
            text = "this page of a job needs a login; open it again at the manager"
            return refusal(text, 401, is_page=is_page, link=self._service.logins.public_url)
        scope["state"]["proxied"] = True
        await self._forward(scope, receive, send, visit.place, visit.holder, visit.caller, direct=False)
        return None

    def _visit(self, scope: Any, headers: Headers, label: str) -> Visit | None:
        cookies = "; ".join(headers.getlist("cookie"))
        return self._proxy.visits.find(cookies, label, secure=self._scheme(scope) == "https")

    def _ask(self, label: str, headers: Headers, scope: Any) -> Response:
        """Another site, or the page of another job, leads here: the visitor decides."""
        own = f"{quote(scope['path'])}" if not scope["path"].startswith(("//", "/\\")) else "/"
        return refusal("Another site linked to this page of a job.", 403, is_page=True, link=own)

    async def _begin_visit(self, request: Request, label: str) -> Response:
        found = self._proxy.visits.begin(request.query_params.get("ticket", "")[:100], label)
        target = request.query_params.get("next", "/")
        if not _leads_below(target):
            target = "/"
        if found is None:
            text = "this link to a page of a job has been used, or is too old; open it again at the manager"
            return refusal(text, 401, is_page=True, link=self._service.logins.public_url)
        name, visit = found
        await self._note(visit.place, visit.holder, visit.caller, visit.holder().name)
        answer = arrival(target)
        secure = self._scheme(request.scope) == "https"
        answer.set_cookie(
            SECURE_COOKIE if secure else COOKIE,
            name,
            max_age=int(LIFETIME_S),
            httponly=True,
            samesite="strict",
            secure=secure,
        )
        return answer

    # -- both ------------------------------------------------------------------------------------

    async def _note(self, place: ProxyPlace, holder: Holder, caller: str, name: str) -> None:
        """Write to the audit log that a caller reaches a place: each visit, and once an hour for a token."""
        await self._forwarder.running(place, holder)
        now_s, key = time.monotonic(), (caller, place)
        if caller.startswith("token") and now_s - self._audited.get(key, -math.inf) < AUDITED_S:
            return
        self._audited.pop(key, None)
        self._audited[key] = now_s
        if len(self._audited) > 10_000:
            del self._audited[next(iter(self._audited))]
        await self._forwarder.audit(place, holder())

    async def _forward(
        self,
        scope: Any,
        receive: Receive,
        send: Send,
        place: ProxyPlace,
        holder: Holder,
        caller: str,
        *,
        direct: bool,
    ) -> None:
        client = str((scope.get("client") or ("",))[0])
        secure = self._scheme(scope) == "https"
        headers = to_job(scope["headers"], client=client, secure=secure, has_own_authorization=not direct)
        target = _target(scope, place if direct else None)
        await self._forwarder.forward(scope, receive, send, place, holder, caller, target, headers, direct=direct)


class JobHosts:
    """Separates hosts of jobs from the manager before all routes: none of its own is ever answered at such a host."""

    def __init__(self, app: Asgi, entrance: ProxyEntrance) -> None:
        self._app = app
        self._entrance = entrance

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer or forward one request."""
        label = self._entrance.label(scope) if scope["type"] in ("http", "websocket") else None
        if label is None:
            await self._app(scope, receive, send)
        else:
            await self._entrance.at_host(label, scope, receive, send)


def _leads_below(target: str) -> bool:
    """Whether a browser takes a text for a path of the same origin; blanks and tabs within it are left out by some."""
    is_path = target.startswith("/") and not target.startswith(("//", "/\\"))
    return is_path and len(target) <= 4000 and not any(char <= " " for char in target)


def _target(scope: Any, place: ProxyPlace | None) -> bytes:
    """Return the path and query for the job, as the browser sent them; without the place's own path if it is given."""
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    if place is not None:
        raw = b"/" + raw.split(b"/", 4)[4] if raw.count(b"/") >= 4 else b"/"
    query: bytes = scope["query_string"]
    return raw + (b"?" + query if query else b"")


def _foreign(scope: Any, headers: Headers) -> str:
    """Return why a request at the host of a place is refused: it was made by a page of another origin."""
    origin = headers.get("origin")
    changes = scope["type"] == "websocket" or scope["method"] not in SAFE_METHODS
    if origin is not None and is_foreign(origin, headers.get("host", "")) and (changes or origin != "null"):
        return "requests of other sites are not allowed"
    if scope["type"] == "websocket" and origin is None:
        return "sockets of browsers only: there is no Origin"
    if headers.get("sec-fetch-site", "") in FOREIGN:
        return "requests of other sites are not allowed"
    return ""


def _is_navigation(scope: Any, headers: Headers) -> bool:
    """Whether a person waits for a page."""
    if scope["type"] != "http":
        return False
    if "sec-fetch-mode" in headers:
        return headers["sec-fetch-mode"] == "navigate" and headers.get("sec-fetch-dest") == "document"
    return "text/html" in headers.get("accept", "")


async def _deny(answer: Response, scope: Any, receive: Receive, send: Send) -> None:
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008})
        return
    with contextlib.suppress(asyncio.CancelledError):
        start = {"status": answer.status_code, "headers": answer.raw_headers}
        await send({"type": "websocket.http.response.start", **start})
        await send({"type": "websocket.http.response.body", "body": answer.body})
