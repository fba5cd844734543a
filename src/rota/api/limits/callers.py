"""Requests of each caller: a rate, and a few at a time, so that one caller's many requests do not delay another's one.

A caller is known by its token, by that of its session or, with neither, by its address. Tokens that are not valid are
as none: guesses share the rate of their address. The owner of a manager that asks for no token is not limited.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from starlette.responses import JSONResponse

from rota.api.access import digest_of
from rota.api.guard.bearer import token_of
from rota.api.identity.attempts import network_of
from rota.api.limits.asgi import Asgi, Message, Receive, Send
from rota.files.up_file import LimitsPart
from rota.live.intake.quotas import Bucket

MOST_CALLERS = 10_000
BYTES_PER_REQUEST = 16 << 10
UNKNOWN_COST = 64
GUESSES = "guesses"
GUESSES_PART = 0.1
"""The part of a caller's rate that all guesses of tokens from one address have together."""
MESSAGES_PER_SECOND, MESSAGES_BURST = 20.0, 200
"""Messages of all pages of a user: keys, clicks and acknowledgements. A burst holds the largest message."""
TYPED_PER_SECOND, TYPED_BURST = 2000.0, 4000
"""Messages of all sessions in tasks: keys that are typed, and pieces of 16 KiB of what is sent to them."""
_SESSION, _PROXY = "/session", "/proxy/"
_PROBES = frozenset({"/healthz", "/readyz"})
_DOES_NOT_FOLLOW = frozenset({"", "0", "f", "false", "n", "no", "off"})
"""Words for false; whatever else `follow` may be counts as a stream."""


class CallerState:
    """What one caller has under way."""

    __slots__ = ("bucket", "messages", "slots", "streams", "typed", "waiting")

    def __init__(self, limits: LimitsPart, part: float = 1.0) -> None:
        burst = max(part * limits.requests_burst, 1.0)
        self.bucket = Bucket(part * limits.requests_per_second, burst, time.monotonic())
        self.messages = Bucket(MESSAGES_PER_SECOND, MESSAGES_BURST, time.monotonic())
        self.typed = Bucket(TYPED_PER_SECOND, TYPED_BURST, time.monotonic())
        self.slots = asyncio.Semaphore(limits.requests_at_once)
        self.streams = 0
        self.waiting = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing of it is under way."""
        return not self.streams and not self.waiting and not self.slots.locked()


class FairRequests:
    """LimitsPart the requests of each caller."""

    def __init__(
        self,
        app: Asgi,
        limits: LimitsPart,
        *,
        token_required: bool,
        is_valid: Callable[[str], bool],
        of_session: Callable[[Any], str | None],
    ) -> None:
        self._app = app
        self._limits = limits
        self._token_required = token_required
        self._is_valid = is_valid
        self._of_session = of_session
        self._callers: dict[str, CallerState] = {}

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Forward a request when it is its turn, or refuse it with 429."""
        key = self._key(scope) if scope["type"] in ("http", "websocket") else None
        if key is None or scope["path"] in _PROBES:
            await self._app(scope, receive, send)
            return
        caller = self._caller(key)
        wait_s = caller.bucket.wait_s(_cost(scope), time.monotonic())
        if wait_s:
            rate = f"more than {self._limits.requests_per_second:g} requests per second"
            await _refuse(scope, receive, send, rate, wait_s)
        elif _is_stream(scope):
            await self._stream(caller, scope, receive, send)
        elif scope["path"].startswith(_PROXY):  # jobs take as long as they like; `rota.api.proxy.limits` bounds these
            await self._app(scope, receive, send)
        elif caller.waiting >= self._limits.requests_waiting:
            waiting = f"{caller.waiting} requests wait already for others of the same caller"
            await _refuse(scope, receive, send, waiting, 1)
        else:
            await self._in_turn(caller, scope, receive, send)

    async def _in_turn(self, caller: CallerState, scope: Any, receive: Receive, send: Send) -> None:
        caller.waiting += 1
        try:
            await caller.slots.acquire()
        finally:
            caller.waiting -= 1
        try:
            await self._app(scope, receive, send)
        finally:
            caller.slots.release()

    async def _stream(self, caller: CallerState, scope: Any, receive: Receive, send: Send) -> None:
        if caller.streams >= self._limits.streams:
            followed = f"{caller.streams} streams and pages are open already; close some"
            await _refuse(scope, receive, send, followed, 1)
            return
        caller.streams += 1
        try:
            if scope["type"] == "websocket":
                is_typed = scope["path"].endswith(_SESSION) or scope["path"].startswith(_PROXY)
                bucket = caller.typed if is_typed else caller.messages
                receive = _throttled(bucket, receive)
            await self._app(scope, receive, send)
        finally:
            caller.streams -= 1

    def _caller(self, key: str) -> CallerState:
        part = GUESSES_PART if key.startswith(GUESSES) else 1.0
        found = self._callers.pop(key, None) or CallerState(self._limits, part)
        self._callers[key] = found  # the latest is the last
        if len(self._callers) > MOST_CALLERS:
            for oldest in [name for name, state in list(self._callers.items())[:100] if state.is_idle]:
                if oldest != key:
                    del self._callers[oldest]
        return found

    def _key(self, scope: Any) -> str | None:
        """Return what the caller is known by; None for the owner of a manager without tokens."""
        source = network_of(str((scope.get("client") or ("",))[0]))
        if token := token_of(scope):
            digest = digest_of(token)
            return f"token {digest}" if self._is_valid(digest) else f"{GUESSES} {source}"
        if not self._token_required:
            return None
        session = self._of_session(scope)
        return f"address {source}" if session is None else f"pages {session}"


def _throttled(bucket: Bucket, receive: Receive) -> Receive:
    """Receive messages no faster than their user may send them; until then they wait in the connection."""

    async def later() -> Message:
        message = await receive()
        if message["type"] == "websocket.receive":
            size = len(message.get("text") or message.get("bytes") or "")
            while wait_s := bucket.wait_s(1 + size // BYTES_PER_REQUEST, time.monotonic()):
                await asyncio.sleep(wait_s)
        return message

    return later


def _cost(scope: Any) -> float:
    """Return how many requests one counts for: a large body, or one of unknown size, takes as long as several."""
    headers = dict(scope["headers"])
    length = headers.get(b"content-length", b"0")
    if b"transfer-encoding" in headers or not length.isdigit() or len(length) > 9:
        return UNKNOWN_COST
    return 1 + min(int(length) // BYTES_PER_REQUEST, UNKNOWN_COST)


def _is_stream(scope: Any) -> bool:
    if scope["type"] == "websocket" or scope["path"] == "/api/v1/events":
        return True
    if not scope["path"].endswith("/logs"):
        return False
    asked = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    return any(name == "follow" and value.lower() not in _DOES_NOT_FOLLOW for name, value in asked)


async def _refuse(scope: Any, receive: Receive, send: Send, what: str, wait_s: float) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1013})
        return
    after_s = max(math.ceil(wait_s), 1)
    body = {"error": f"too many requests: {what}; try again in {after_s} s"}
    await JSONResponse(body, status_code=429, headers={"Retry-After": str(after_s)})(scope, receive, send)
