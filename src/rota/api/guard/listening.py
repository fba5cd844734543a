"""The address on which a manager listens."""

from __future__ import annotations

import ipaddress
import socket

from rota.core.errors import RotaError


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(1024)
    except (OSError, OverflowError) as error:
        raise RotaError(
            f"{host}:{port} can't be listened on: {error}; choose another with --host and --port"
        ) from error
    return listening


def url_of(listening: socket.socket, *, secure: bool, near: bool = False) -> str:
    """Return the URL of a socket; `near`: as seen from this machine."""
    host, port = listening.getsockname()[:2]
    if near:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if secure else 'http'}://{shown}:{port}"
