"""Answers of a manager and what is wrong with them, as errors in one line."""

from __future__ import annotations

import http.client
import json
import select
import ssl
from typing import Any

from rota.core.errors import RotaError, Unavailable


class Refused(RotaError):
    """The manager refused a request; `status` is the HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def is_open(connection: http.client.HTTPConnection) -> bool:
    """Whether the manager has kept the connection open: a closed one is readable."""
    return connection.sock is not None and not select.select([connection.sock], [], [], 0)[0]


def trusting(cacert: str | None) -> ssl.SSLContext:
    """Return a context that trusts the system's certificates, or those in a file."""
    try:
        return ssl.create_default_context(cafile=cacert)
    except (OSError, ssl.SSLError) as error:
        raise RotaError(f"ROTA_CACERT: {cacert!r} can't be read as certificates (PEM): {error}") from error


def not_trusted(url: str, error: ssl.SSLCertVerificationError) -> RotaError:
    """Return the error for a certificate that can't be verified, with the way out."""
    why = error.verify_message or "it can't be verified"
    return RotaError(
        f"the certificate of {url} is not trusted: {why}; name the file of its certificate authority with ROTA_CACERT"
    )


def logged_out(content: bytes) -> RotaError:
    """Return the refusal of a token that `rota login` left, with the way out."""
    try:
        checked(401, content)
    except Refused as refused:
        return Refused(f"{refused}; log in again with `rota login`", 401)
    raise AssertionError


def checked(status: int, content: bytes) -> Any:
    """Return the value of an answer; raise `Refused` or `Unavailable` if it is not a success."""
    try:
        value = json.loads(content) if content else None
    except ValueError:
        value = {"error": content[:200].decode("utf-8", errors="replace")}
    if status < 400:
        return value
    message = value.get("error", f"HTTP {status}") if isinstance(value, dict) else f"HTTP {status}"
    if status >= 500:
        raise Unavailable(f"the manager failed: {message}")
    raise Refused(str(message), status)
