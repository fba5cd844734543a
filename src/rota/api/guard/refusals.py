"""Refused logins and requests in the audit log, in bounded number.

The first refusal of a source in a minute is written within a second. Those that follow in the same minute are written
as one entry with their number when the minute is over. A flood of refusals from few sources or from many
therefore costs a bounded number of entries a minute, and no work of the loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import SQLAlchemyError

from rota.store import clock

if TYPE_CHECKING:
    from rota.api.service import Service

log = logging.getLogger("rota.api")
MINUTE_S = 60.0
FLUSH_S = 0.5
MAX_SOURCES = 10
"""Sources with entries of their own in a minute; refusals of further ones share one entry."""
OTHERS = "other sources"
PATH_CHARS = 120
REFUSED = frozenset({401, 403, 429})
_ANSWERS = frozenset({"http.response.start", "websocket.http.response.start"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRequest:
    """One refused request: its address, its caller where known, the status and the request."""

    source: str
    caller: str | None
    status: int
    request: str
    is_login: bool = False

    @property
    def key(self) -> tuple[str, str | None, int, bool]:
        """What refusals are counted by."""
        return self.source, self.caller, self.status, self.is_login


class RefusalCount:
    """The refusals of one source in one minute."""

    __slots__ = ("first", "further", "written")

    def __init__(self, first: RefusedRequest) -> None:
        self.first = first
        self.further = 0
        self.written = False


class RefusalLog:
    """Counts refusals by source and minute, and writes them to the audit log."""

    def __init__(self, append: Callable[[Sequence[dict[str, Any]]], None]) -> None:
        self._append = append
        self._counts: dict[tuple[str, str | None, int, bool], RefusalCount] = {}
        self._since_s = time.monotonic()
        self._unsaved: list[dict[str, Any]] = []

    def note(self, refusal: RefusedRequest) -> None:
        """Count a refusal."""
        key = refusal.key
        if key not in self._counts and len(self._counts) >= MAX_SOURCES:
            key = (OTHERS, None, 0, False)
        count = self._counts.get(key)
        if count is None:
            self._counts[key] = RefusalCount(refusal)
        else:
            count.further += 1

    def due(self, now_s: float, *, all: bool = False) -> list[dict[str, Any]]:
        """Return the entries that are due: first refusals, and at the end of a minute those that followed."""
        found = []
        for key, count in self._counts.items():
            if not count.written:
                count.written = True
                found.append(_entry(key, count, 0))
        if all or now_s - self._since_s >= MINUTE_S:
            found += [_entry(key, count, count.further) for key, count in self._counts.items() if count.further]
            self._counts.clear()
            self._since_s = now_s
        return found

    async def flush(self, *, all: bool = False) -> None:
        """Write what is due; what can't be written now is kept for the next time, up to a bound."""
        self._unsaved += self.due(time.monotonic(), all=all)
        del self._unsaved[: -4 * MAX_SOURCES]
        if not self._unsaved:
            return
        unsaved, self._unsaved = self._unsaved, []
        try:
            await asyncio.to_thread(self._append, unsaved)
        except SQLAlchemyError as error:
            log.warning("refusals can't be written to the audit log", extra={"error": str(error)})
            self._unsaved = unsaved + self._unsaved

    async def run(self) -> None:
        """Write refusals until cancelled, and then those that are left."""
        try:
            while True:
                await asyncio.sleep(FLUSH_S)
                await self.flush()
        finally:
            await asyncio.shield(self.flush(all=True))


def _entry(key: tuple[str, str | None, int, bool], count: RefusalCount, further: int) -> dict[str, Any]:
    source, caller, _, is_login = key
    told = f"{count.first.status} {count.first.request}"
    if source == OTHERS:
        told = f"from further sources, e.g. {count.first.source}: {told}"
    if further:
        told = f"{further} more in the same minute; {told}"
    what = "login-refused" if is_login else "refused"
    return {"at_s": clock.now_s(), "who": caller or "-", "what": what, "thing": source, "detail": told}


class NotedRefusals:
    """Notes every response with the status 401, 403 or 429, and every websocket that is not accepted."""

    def __init__(self, app: Callable[[Any, Any, Any], Any], service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Forward a request, and look at the status of its response."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})

        async def noted(message: Any) -> None:
            if scope["state"].get("proxied"):
                pass  # the job's own answer, not the manager's
            elif message["type"] in _ANSWERS and message["status"] in REFUSED:
                self._note(scope, message["status"])
            elif message["type"] == "websocket.close" and message.get("code") == 1008:
                self._note(scope, 403)
            await send(message)

        await self._app(scope, receive, noted)

    def _note(self, scope: Any, status: int) -> None:
        source = scope["client"][0] if scope.get("client") else "-"
        method = scope.get("method", "WEBSOCKET")
        caller = scope["state"].get("caller")
        request = f"{method} {scope['path'][:PATH_CHARS]}"
        if scope["state"].get("claimed"):
            request += f" as {scope['state']['claimed'][:64]!r}"
        self._service.refusals.note(
            RefusedRequest(
                source=str(source),
                caller=None if caller is None else str(caller),
                status=status,
                request=request,
                is_login=scope["path"].startswith(("/login", "/api/v1/login")),
            )
        )
