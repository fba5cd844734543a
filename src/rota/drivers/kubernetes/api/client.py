"""The API server over HTTP, with as little as possible between the wire and plain values, because binds pass here.

Measured on two cores, a typed client costs three times the CPU per bind (docs/decisions/0006-kubernetes.md).
"""

from __future__ import annotations

import asyncio
import math
import random
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import aiohttp
import orjson

from rota.core.errors import RotaError, Unavailable
from rota.drivers.kubernetes.api.connection import Connection
from rota.drivers.kubernetes.api.fence import Fence

Json = dict[str, Any]
Params = Mapping[str, str | int]
JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
PAGE = 2000
"""Objects per page of a list."""
TOKEN_S = 60.0
WAKING_S = 120.0
"""How long after an outage the server's role cache may be stale."""
MOST_MESSAGE = 16 << 20
CLOSE_S = 2.0
SILENT_S = 2.0
"""Silence after which a server with pending requests counts as unreachable."""
USUAL = aiohttp.ClientTimeout(total=60, sock_connect=10)
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
_PASSING = frozenset({408, 429, 500, 502, 503, 504})
_LACKS_RIGHT = re.compile(r'\bcannot \S+ (?:resource|path) "')
"""What the API server says about a right; policies and webhooks of a cluster refuse with 403 as well, in any words."""


class ApiRefused(Unavailable):
    """The API server refused a request; `status` is the HTTP status, `reason` its code."""

    def __init__(self, status: int, reason: str, message: str, pause_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.pause_s = pause_s

    @property
    def is_passing(self) -> bool:
        """Whether a retry may succeed."""
        return self.status in _PASSING


class MissingRight(RotaError):
    """Rota's identity lacks a right that it needs."""


class Unreachable(Unavailable):
    """The API server can't be reached."""


class Api:
    """A session with an API server."""

    def __init__(self, connection: Connection, *, connections: int = 64, fence: Fence | None = None) -> None:
        self._connection = connection
        self._fence = fence
        """What every write has to pass."""
        self._tls = connection.tls()
        self._headers: dict[str, str] = {}
        self._headers_until_s = 0.0
        self._away_s = -math.inf
        self._is_away = False
        self._asked = 0
        self._answered_s = 0.0
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._tls or True, keepalive_timeout=300)
        )
        self._room = asyncio.Semaphore(connections)

    @property
    def namespace(self) -> str:
        """The namespace of the connection's identity or context."""
        return self._connection.namespace

    @property
    def is_silent(self) -> bool:
        """Whether the server is unreachable or silent, so that nothing can be changed now."""
        is_slow = self._asked > 0 and asyncio.get_running_loop().time() > self._answered_s + SILENT_S
        is_fenced = self._fence is not None and not self._fence.is_open
        return self._is_away or is_slow or is_fenced

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def get(self, path: str, **params: str | int) -> Any:
        """Get an object."""
        return await self._ask("GET", path, None, JSON, params)

    async def post(self, path: str, body: Any, **params: str | int) -> Any:
        """Create an object."""
        return await self._ask("POST", path, body, JSON, params)

    async def put(self, path: str, body: Any) -> Any:
        """Replace an object."""
        return await self._ask("PUT", path, body, JSON, {})

    async def patch(self, path: str, body: Any, kind: str = MERGE) -> Any:
        """Patch an object."""
        return await self._ask("PATCH", path, body, kind, {})

    async def delete(self, path: str, body: Any = None) -> Any:
        """Delete an object."""
        return await self._ask("DELETE", path, body, JSON, {})

    async def text(self, path: str, **params: str | int) -> str:
        """A response that is not JSON."""
        async with self._room, self._request("GET", path, None, JSON, params) as answer:
            body = await answer.read()
            if answer.status >= 400:
                raise _refusal(answer, body)
            text: str = body.decode("utf-8", errors="replace")
            return text

    async def everything(self, path: str, **params: str | int) -> tuple[list[Json], str]:
        """All objects of a collection, page by page, and the resource version to watch from."""
        items: list[Json] = []
        version = ""
        async for page in self._pages(path, PAGE, params):
            items.extend(page.get("items") or ())
            version = str(page["metadata"].get("resourceVersion", ""))
        return items, version

    async def pages(self, path: str, size: int, **params: str | int) -> AsyncIterator[list[Json]]:
        """All objects of a collection as they are now, in pages, each of which is asked for when the last is used."""
        async for page in self._pages(path, size, params):
            yield page.get("items") or []

    async def _pages(self, path: str, size: int, params: Params) -> AsyncIterator[Json]:
        more = ""
        while True:
            page = await self.get(path, limit=size, **params, **({"continue": more} if more else {}))
            yield page
            more = page["metadata"].get("continue") or ""
            if not more:
                return

    async def watch(self, path: str, version: str, **params: str | int) -> AsyncIterator[list[Json]]:
        """Yield the changes since a version in batches as they arrive, until the server ends the watch."""
        wanted = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": random.randint(300, 600),
            **params,
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=660)
        try:
            async with self._request("GET", path, None, JSON, wanted, timeout) as answer:
                if answer.status >= 400:
                    raise _refusal(answer, await answer.read())
                self._note_answer()
                rest = b""
                async for chunk in answer.content.iter_any():
                    lines = (rest + chunk).split(b"\n")
                    rest = lines.pop()
                    if lines:
                        yield [_checked(orjson.loads(line)) for line in lines if line]
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._not_there(error) from error
        except MissingRight as error:
            raise self._as_it_wakes(error) from error

    async def stream(self, path: str, **params: str | int) -> AsyncIterator[bytes]:
        """The bytes of a response as they arrive."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        async with self._request("GET", path, None, JSON, params, timeout) as answer:
            if answer.status >= 400:
                raise _refusal(answer, await answer.read())
            async for chunk in answer.content.iter_any():
                yield chunk

    async def socket(
        self, path: str, params: Sequence[tuple[str, str]], protocols: Sequence[str]
    ) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket, as for a command in a pod; raises what a request for the same path would."""
        try:
            return await self._session.ws_connect(
                self._connection.server + path,
                params=list(params),
                protocols=protocols,
                headers=self._auth(),
                max_msg_size=MOST_MESSAGE,
                timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_S),
            )
        except aiohttp.WSServerHandshakeError as error:
            raise await self._why_no_socket(path, params, error.status) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._not_there(error) from error

    async def _why_no_socket(self, path: str, params: Sequence[tuple[str, str]], status: int) -> Exception:
        """Ask again without a socket, as only that brings the reason along."""
        async with self._session.get(
            self._connection.server + path, params=list(params), headers=self._auth(), timeout=USUAL
        ) as answer:
            content = await answer.read()
            if answer.status == status:
                return _refusal(answer, content)
        return ApiRefused(status, "", f"{path}: the API server opens no WebSocket ({status}); is the node away?")

    async def patiently(self, method: str, path: str, body: Any, *, within_s: float, kind: str = JSON) -> Any:
        """Send a request, retrying for at most `within_s` while the server is busy or unreachable."""
        loop = asyncio.get_running_loop()
        deadline, pause_s = loop.time() + within_s, FIRST_PAUSE_S
        while True:
            try:
                return await self._ask(method, path, body, kind, {})
            except ApiRefused as error:
                if not error.is_passing or loop.time() + pause_s > deadline:
                    raise
                await asyncio.sleep(max(pause_s, error.pause_s or 0.0) * random.uniform(0.7, 1.3))
            except Unreachable:
                if loop.time() + pause_s > deadline:
                    raise
                await asyncio.sleep(pause_s * random.uniform(0.7, 1.3))
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    async def _ask(self, method: str, path: str, body: Any, kind: str, params: Params) -> Any:
        async with self._room:
            if self._fence is not None and method != "GET":
                await self._fence.passed()
            if not self._asked:
                self._answered_s = asyncio.get_running_loop().time()
            self._asked += 1
            try:
                async with self._request(method, path, body, kind, params) as answer:
                    content = await answer.read()
                    self._note_answer()
                    if answer.status >= 400:
                        raise _refusal(answer, content)
                    return orjson.loads(content) if content else None
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise self._not_there(error) from error
            except MissingRight as error:
                raise self._as_it_wakes(error) from error
            finally:
                self._asked -= 1

    def _note_answer(self) -> None:
        self._is_away, self._answered_s = False, asyncio.get_running_loop().time()

    def _not_there(self, error: Exception) -> Unreachable:
        self._is_away, self._away_s = True, asyncio.get_running_loop().time()
        return Unreachable(f"{self._connection.server} does not respond: {error or type(error).__name__}")

    def _as_it_wakes(self, error: MissingRight) -> Exception:
        """Whether a refusal may be transient: a server that just came back may not have loaded its roles."""
        is_waking = asyncio.get_running_loop().time() < self._away_s + WAKING_S
        return Unreachable(f"{self._connection.server} is starting up: {error}") if is_waking else error

    def _request(
        self,
        method: str,
        path: str,
        body: Any,
        kind: str,
        params: Params,
        timeout: aiohttp.ClientTimeout | None = None,
    ) -> Any:
        headers = self._auth()
        data = None
        if body is not None:
            data = body if isinstance(body, bytes) else orjson.dumps(body)
            headers = {**headers, "Content-Type": kind}
        return self._session.request(
            method,
            self._connection.server + path,
            data=data,
            headers=headers,
            params=params or None,
            timeout=timeout or USUAL,
        )

    def _auth(self) -> dict[str, str]:
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._headers_until_s:
            token = self._connection.credentials()
            self._headers = {"Accept": JSON}
            if token is not None:
                self._headers["Authorization"] = f"Bearer {token}"
            self._headers_until_s = now_s + TOKEN_S
        return self._headers


def _refusal(answer: aiohttp.ClientResponse, content: bytes) -> Exception:
    """The error for a response with status 400 or above."""
    try:
        status = orjson.loads(content)
    except orjson.JSONDecodeError:
        status = {}
    if not isinstance(status, dict):
        status = {}
    return _from_status(answer.status, status, answer.headers.get("Retry-After"), f"{answer.method} {answer.url.path}")


def _from_status(code: int, status: Json, pause: str | None, what: str) -> Exception:
    message = str(status.get("message") or f"{what}: the API server answered {code}")
    if code == 403 and _LACKS_RIGHT.search(message):
        return MissingRight(f"a right is missing: {message}; `rota k8s manifests` prints all that are needed")
    if code == 401:
        return RotaError(
            f"the API server does not recognise the credentials (401): {message}; check the kubeconfig's user"
        )
    pause_s = float(pause) if pause is not None and pause.isdigit() else None
    return ApiRefused(code, str(status.get("reason", "")), message, pause_s)


def _checked(change: Json) -> Json:
    """A parsed change; raises if the server sent an error object."""
    if change["type"] == "ERROR":
        status = change["object"]
        raise _from_status(int(status.get("code", 500)), status, None, "watch")
    return change
