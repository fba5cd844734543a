"""The types of ASGI, the interface between the server and its applications."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Any, Receive, Send], Awaitable[None]]


class Pages(Protocol):
    """The application for requests outside of the API, which knows the sessions of browsers."""

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer one request."""

    def holder(self, scope: Any) -> Callable[[], Any] | None:
        """Return what finds the visitor's principal with its present rights; None for a request without a login."""

    def token_digest(self, scope: Any) -> str | None:
        """Return the digest of the token that the session of a request was opened with; None without a session."""
