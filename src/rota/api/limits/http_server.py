"""Uvicorn's server with bounded connections, and without signal handlers of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvicorn

from rota.api.limits.connections import Acceptor, BoundedHttp, Connections

CLOSE_S = 2
MOST_MESSAGE_BYTES = 1 << 20
"""The size of a message that a page sends."""


def http_config(app: Any, certificate: Path | None = None, key: Path | None = None, **more: Any) -> uvicorn.Config:
    """Return the configuration of a server for an application."""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=CLOSE_S,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        server_header=False,
        ws_max_size=MOST_MESSAGE_BYTES,
        **more,
    )


class HttpServer(uvicorn.Server):
    """A server of one application. A requested stop is not an error."""

    def __init__(self, config: uvicorn.Config, most_connections: int) -> None:
        super().__init__(config)
        self.connections = Connections(most_connections)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections of the given sockets."""
        assert sockets, "a manager listens before it serves"
        await self.lifespan.startup()
        make = self._maker()
        self.servers = [Acceptor(each, make, self.config.ssl, self.connections) for each in sockets]  # type: ignore[misc]  # only closed
        self.started = True

    def _maker(self) -> Callable[[], asyncio.Protocol]:
        kind = type("ManagerHttp", (BoundedHttp,), {"bounds": self.connections})

        def make() -> asyncio.Protocol:
            made: asyncio.Protocol = kind(self.config, self.server_state, self.lifespan.state)
            return made

        return make

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signal handlers unchanged."""
        yield
