"""Keeps other users of the machine out of a manager without tokens.

On loopback a manager needs no token: the user who started it is its owner. Other users of the same machine can connect
to loopback as well, and would run jobs with the owner's rights, as root where root started it. The kernel knows which
user a local connection belongs to; only the owner's connections, and root's, are served. What the kernel says is asked
for whatever address the other end has: to loopback, a connection can also come from another address of this machine.
A connection of which the kernel knows no user, as one that its sender has reset, is served to no one.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from starlette.responses import JSONResponse

from rota.api.guard.bearer import token_of

log = logging.getLogger("rota.api")
PROBES = frozenset({"/healthz", "/readyz"})
"""What load balancers and supervisors ask; it tells nothing about jobs."""
_ALL_STATES = 0xFFFFFFFF
_BY_FAMILY, _REQUEST, _ERROR = 20, 1, 2
_NO_COOKIE = 0xFFFFFFFF
_UID_AT = 16 + 4 + 48 + 12
"""Where the answer holds the user id: after the header, four bytes, the socket's addresses and three counters."""
NO_USER = -1
"""There is no other end, or it is closed already, so that it belongs to no user any more."""
_NETLINK_SOCK_DIAG = 4
Place = tuple[bytes, int]
"""The address and the port of one end of a connection."""
Ask = Callable[[Place, Place], int]
"""Returns the user of the end at the first place of a connection to the second."""


class SameUser:
    """Refuses requests without a token that come from another user of this machine."""

    def __init__(self, app: Callable[[Any, Any, Any], Any]) -> None:
        self._app = app
        self._allowed = {0, os.geteuid()}
        self._ask = way_to_ask()
        if self._ask is None:
            log.warning("the kernel does not tell whose a connection is: every user of this machine is served")

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
        return self._ask is None or user_of(scope.get("client"), scope.get("server"), self._ask) in self._allowed


def way_to_ask() -> Ask | None:
    """Return a way to ask for the user of a connection that finds our own; None if there is none, as in a sandbox."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as peer,
    ):
        for ask in (ask_kernel, ask_table):
            if user_of(peer.getsockname(), listening.getsockname(), ask) == os.geteuid():
                return ask
    return None


def user_of(client: tuple[str, int] | None, server: tuple[str, int] | None, ask: Ask) -> int:
    """Return the user that holds the other end of a connection on this machine; `NO_USER` if none is found."""
    if client is None or server is None:  # its sender has reset it
        return NO_USER
    try:
        here, there = (ipaddress.ip_address(host) for host in (client[0], server[0]))
    except ValueError:
        return NO_USER
    if here.version != there.version:
        return NO_USER
    with suppress(OSError, struct.error):
        return ask((here.packed, client[1]), (there.packed, server[1]))
    return NO_USER


def ask_kernel(here: Place, there: Place) -> int:
    """Ask by `sock_diag` for one connection."""
    family = socket.AF_INET if len(here[0]) == 4 else socket.AF_INET6
    ends = struct.pack("!HH16s16s", here[1], there[1], here[0], there[0])
    place = ends + struct.pack("=III", 0, _NO_COOKIE, _NO_COOKIE)
    body = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, _ALL_STATES) + place
    header = struct.pack("=IHHII", 16 + len(body), _BY_FAMILY, _REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as asking:
        asking.settimeout(1.0)
        asking.sendto(header + body, (0, 0))
        answer = asking.recv(4096)
    (kind,) = struct.unpack_from("=H", answer, 4)
    if kind == _ERROR:
        return NO_USER
    user, inode = struct.unpack_from("=II", answer, _UID_AT)
    return int(user) if inode else NO_USER  # the kernel says root for an end that its process has closed


def ask_table(here: Place, there: Place) -> int:
    """Look a connection up in the kernel's table of all, where `sock_diag` is missing."""
    wanted = f"{_in_table(here)} {_in_table(there)}"
    table = "tcp" if len(here[0]) == 4 else "tcp6"
    for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
        fields = line.split()
        if f"{fields[1]} {fields[2]}" == wanted:
            user, inode = int(fields[7]), int(fields[9])
            return user if inode else NO_USER
    return NO_USER


def _in_table(place: Place) -> str:
    """Return a place as the table writes it: each word of the address in the machine's own byte order."""
    words = struct.unpack(f"={len(place[0]) // 4}I", place[0])
    return "".join(f"{word:08X}" for word in words) + f":{place[1]:04X}"
