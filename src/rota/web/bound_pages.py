"""Binds every page to the session that built it: other sessions can neither read its socket nor send to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from inspect import isawaitable
from typing import Any
from urllib.parse import parse_qs

from nicegui import Client, core
from nicegui.background_tasks import create as create_task
from socketio.exceptions import ConnectionRefusedError as SocketRefused

from rota.api.guard.stream_watch import StreamWatch
from rota.web.sessions import Visitor

LEAVE_S = 0.3
"""How long a page has to open the login page before its socket is closed."""
LOAD_AGAIN = "Implicit handshake failed"
"""The refusal after which NiceGUI's script loads the page again."""
Handler = Callable[..., Any]


def _marked(handler: Handler, original: Handler) -> Handler:
    handler.unguarded = original  # type: ignore[attr-defined]  # functions take attributes
    return handler


class BoundPages:
    """The open pages with the session of each."""

    def __init__(self, watch: StreamWatch) -> None:
        self._watch = watch
        self._owners: dict[str, Visitor] = {}

    def bind(self, client: Client, visitor: Visitor) -> None:
        """Let a page belong to a session, and end with it."""
        self._owners[client.id] = visitor
        stop = self._watch.add(visitor.is_known, lambda: self._end(client))

        def forget() -> None:
            stop()
            self._owners.pop(client.id, None)

        client.on_delete(forget)
        self._delete_once(client)

    def _delete_once(self, client: Client) -> None:
        """Let a page be deleted only once: here when its session ends, and by NiceGUI after its socket has closed."""
        delete = client.delete

        def delete_once() -> None:
            if client.id in Client.instances:
                delete()

        client.delete = delete_once  # type: ignore[method-assign]  # the only place that both go through

    def allows(self, scope: Any, client_id: object) -> bool:
        """Whether the session of a socket owns a page."""
        owner, visitor = self._owners.get(str(client_id)), scope.get("rota.visitor")
        return owner is not None and isinstance(visitor, Visitor) and owner.is_same_as(visitor) and visitor.is_known()

    def guard(self) -> None:
        """Check every message of every socket against the page that it names; this replaces an earlier guard."""
        handlers = core.sio.handlers["/"]
        for event, handler in list(handlers.items()):
            original = getattr(handler, "unguarded", handler)
            if event == "connect":
                handlers[event] = _marked(self._checked_connect(original), original)
            elif event != "disconnect":
                handlers[event] = _marked(self._checked(original), original)

    def _checked(self, handler: Handler) -> Handler:
        async def checked(sid: str, data: Any) -> Any:
            environ = core.sio.get_environ(sid) or {}
            client_id = data.get("client_id") if isinstance(data, dict) else None
            if not self.allows(environ.get("asgi.scope", {}), client_id):
                return False
            answer = handler(sid, data)
            return await answer if isawaitable(answer) else answer

        return checked

    def _checked_connect(self, handler: Handler) -> Handler:
        async def checked(sid: str, environ: dict[str, Any], auth: Any = None) -> Any:
            named = parse_qs(environ.get("QUERY_STRING", "")).get("client_id")
            if named is not None and not self.allows(environ.get("asgi.scope", {}), named[0]):
                is_gone = named[0] not in Client.instances  # after a restart, or a connection that was lost for long
                raise SocketRefused(LOAD_AGAIN if is_gone else "this page belongs to another session")
            return await handler(sid, environ, auth)

        return checked

    def _end(self, client: Client) -> None:
        client.open("/login")
        create_task(self._close(client), name=f"close page {client.id}")

    async def _close(self, client: Client) -> None:
        await asyncio.sleep(LEAVE_S)
        for sid, _ in list(core.sio.manager.get_participants("/", client.id)):
            await core.sio.disconnect(sid)
        client.delete()
