"""The manager's log: one event per line on stderr, as text for people or JSON for machines.

Events are records of the standard library's logging with their fields in `extra`, so that messages of other libraries
(uvicorn, SQLAlchemy) appear in the same log. Job files, variables, tokens and query strings are never logged.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from rota.core.neutral_text import neutral, neutral_json

log = logging.getLogger("rota.api")
request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The id of the current request."""
REFUSED_SOCKET = "ASGI callable returned without completing handshake."
"""What uvicorn calls an error whenever a WebSocket was refused with an answer: strangers would fill the log with it."""
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_PLAIN = re.compile(r"[^\s\"=]+")

Message = MutableMapping[str, Any]


class LogFormat(Enum):
    """The formats of a line."""

    TEXT = "text"
    JSON = "json"


class LogLevel(Enum):
    """The lowest level of events that are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def set_up(form: LogFormat, level: LogLevel) -> None:
    """Send everything that is logged in this process to stderr in one format."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form is LogFormat.JSON else TextLines())
    handler.addFilter(_with_request)
    handler.addFilter(lambda record: record.msg != REFUSED_SOCKET)
    logging.raiseExceptions = False  # a closed log must not stop the manager
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("rota").setLevel(level.value.upper())


def _with_request(record: logging.LogRecord) -> bool:
    current = request_id.get()
    if current is not None and "request" not in vars(record):
        record.request = current
    return True


class JsonLines(logging.Formatter):
    """One object per line: `at`, `level`, `logger`, `event`, and the event's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one line."""
        return neutral_json(json.dumps(_fields(self, record), ensure_ascii=False, default=str))


class TextLines(logging.Formatter):
    """One line of text per event: the event, then its fields as `name=value`."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one line."""
        fields = _fields(self, record)
        at, level, _, event = (str(fields.pop(name)) for name in ("at", "level", "logger", "event"))
        rest = "".join(f" {name}={_quoted(value)}" for name, value in fields.items())
        return f"{at} {level:<7} {neutral(' '.join(event.split()))}{rest}"


def _fields(formatter: logging.Formatter, record: logging.LogRecord) -> dict[str, Any]:
    at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    known: dict[str, Any] = {
        "at": at,
        "level": record.levelname.lower(),
        "logger": record.name,
        "event": record.getMessage(),
    }
    known |= {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS and value is not None}
    if record.exc_info:
        known["error"] = formatter.formatException(record.exc_info)
    return known


def _quoted(value: object) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) and text.isprintable() else neutral_json(json.dumps(text, ensure_ascii=False))


class LoggedRequests:
    """Gives every request an id, which its response and all of its log entries contain."""

    def __init__(self, app: Callable[[Any, Any, Any], Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Callable[[Message], Awaitable[None]]) -> None:
        """Forward a request, and log its response."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
        own_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        token, begun, status = request_id.set(own_id), time.perf_counter(), 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", own_id.encode())]
            await send(message)

        try:
            await self._app(scope, receive, answer)
        finally:
            level = logging.ERROR if status >= 500 else logging.DEBUG
            if log.isEnabledFor(level):
                duration = {"ms": round((time.perf_counter() - begun) * 1e3, 1)}
                about = {"method": scope["method"], "path": scope["path"], "status": status, **duration}
                log.log(level, "request", extra=about)
            request_id.reset(token)
