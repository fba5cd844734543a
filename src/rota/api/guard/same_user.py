"""Keeps other users of the machine out of a manager without tokens.

On loopback a manager needs no token: the user who started it is its owner. Other users of the same machine can connect
to loopback as well, and would run jobs with the owner's rights, as root where root started it. The kernel knows which
user a local connection belongs to (`sock_diag`); only the owner's connections, and root's, are served.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from starlette.responses import JSONResponse

from rota.api.guard.bearer import token_of

PROBES = frozenset({"/healthz", "/readyz"})
"""What load balancers and supervisors ask; it tells nothing about jobs."""
_ALL_STATES = 0xFFFFFFFF
_BY_FAMILY, _REQUEST, _ERROR = 20, 1, 2
_NO_COOKIE = 0xFFFFFFFF
_UID_AT = 16 + 4 + 48 + 12
"""Where the answer holds the user id: after the header, four bytes, the socket's addresses and three counters."""
NO_USER = -1
"""The other end is closed already, so that it belongs to no user any more."""
_NETLINK_SOCK_DIAG = 4


class SameUser:
    """Refuses requests without a token that come from another user of this machine."""

    def __init__(self, app: Callable[[Any, Any, Any], Any]) -> None:
        self._app = app
        self._allowed = {0, os.geteuid()}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer or forward one request."""
        if scope["type"] not in ("http", "websocket") or self._is_allowed(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            error = "this manager belongs to another user of this machine; ask its owner for a token"
            await JSONResponse({"error": error}, status_code=403)(scope, receive, send)

    def _is_allowed(self, scope: Any) -> bool:
        if scope["path"] in PROBES or token_of(scope):  # whose owner is found later; an empty header names none
            return True
        user = user_of(scope.get("client"), scope.get("server"))
        return user is None or user in self._allowed


def user_of(client: tuple[str, int] | None, server: tuple[str, int] | None) -> int | None:
    """Return the user that holds the other end of a local connection.

    None if it is not on this machine, or the kernel does not tell (as in some sandboxes).
    """
    if client is None or server is None:
        return None
    try:
        here, there = (ipaddress.ip_address(host) for host in (client[0], server[0]))
    except ValueError:
        return None
    if not here.is_loopback or here.version != there.version:
        return None
    with suppress(OSError):
        return _ask_kernel(here.packed, client[1], there.packed, server[1])
    return None


def _ask_kernel(here: bytes, port: int, there: bytes, server_port: int) -> int | None:
    family = socket.AF_INET if len(here) == 4 else socket.AF_INET6
    place = struct.pack("!HH16s16s", port, server_port, here, there) + struct.pack("=III", 0, _NO_COOKIE, _NO_COOKIE)
    body = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, _ALL_STATES) + place
    header = struct.pack("=IHHII", 16 + len(body), _BY_FAMILY, _REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as asking:
        asking.settimeout(1.0)
        asking.sendto(header + body, (0, 0))
        answer = asking.recv(4096)
    (kind,) = struct.unpack_from("=H", answer, 4)
    if kind == _ERROR:
        (code,) = struct.unpack_from("=i", answer, 16)
        return NO_USER if -code == errno.ENOENT else None
    if len(answer) < _UID_AT + 8:
        return None
    user, inode = struct.unpack_from("=II", answer, _UID_AT)
    return int(user) if inode else NO_USER  # the kernel says root for an end that its process has closed
