"""Headers between a browser and a job: the manager's own never reach the job, nor the job's the manager."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rota.api.proxy.visits import COOKIE, SECURE_COOKIE, cookie_name, without_own_cookies

Headers = list[tuple[bytes, bytes]]
OWN_COOKIES = frozenset(
    {COOKIE, SECURE_COOKIE, "rota_session", "__Host-rota_session", "rota_login", "rota_device", "rota_theme"}
)
"""Cookies of the manager. Browsers do not send them to other origins; whatever sends them, no job gets them."""
_OF_A_CONNECTION = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)
_NOT_TO_JOBS = frozenset(
    {b"expect", b"forwarded", b"proxy-authorization", b"rota-direct", b"x-real-ip", b"x-request-id", b"content-length"}
)
_NOT_TO_BROWSERS = frozenset(
    {b"alt-svc", b"clear-site-data", b"proxy-authenticate", b"strict-transport-security", b"x-request-id"}
)
"""What would reach beyond the origin: other ports, the cookies of the whole domain, and TLS of other hosts."""
_OF_SOCKETS = re.compile(rb"sec-websocket-.*")
_ROTA_TOKEN = re.compile(rb"\brota_[A-Za-z0-9_-]{16,}")
FRAMES = (b"content-security-policy", b"frame-ancestors 'self'")
SANDBOX = (b"content-security-policy", b"sandbox; default-src 'none'; frame-ancestors 'none'")
NO_SNIFF = (b"x-content-type-options", b"nosniff")


def to_job(
    headers: Iterable[tuple[bytes, bytes]], *, client: str, secure: bool, has_own_authorization: bool
) -> Headers:
    """Return the headers of a request as the job gets them.

    `has_own_authorization`: its Authorization header is the job's affair, as at the job's own origin; it is still
    dropped where it holds a token of the manager.
    """
    given = list(headers)
    listed = _listed(given)
    found: Headers = []
    for name, value in given:
        if name in _OF_A_CONNECTION or name in _NOT_TO_JOBS or name in listed or name.startswith(b"x-forwarded-"):
            continue
        if name == b"authorization" and (not has_own_authorization or _ROTA_TOKEN.search(value)):
            continue
        if name == b"cookie":
            value = without_own_cookies(value.decode("latin-1"), OWN_COOKIES).encode("latin-1")
            if not value:
                continue
        found.append((name, value))
    host = next((value for name, value in given if name == b"host"), b"")
    forwarded = ((b"x-forwarded-for", client.encode()), (b"x-forwarded-host", host))
    return [*found, *forwarded, (b"x-forwarded-proto", b"https" if secure else b"http")]


def without_sockets(headers: Headers) -> Headers:
    """Return headers without those of a WebSocket's handshake, which is made again with the job."""
    return [(name, value) for name, value in headers if not _OF_SOCKETS.fullmatch(name)]


def to_browser(headers: Sequence[tuple[bytes, bytes]], *, direct: bool) -> Headers:
    """Return the headers of an answer as they are passed on; `direct`: to a caller with a token, not to a browser."""
    listed = _listed(headers)
    found: Headers = []
    for name, value in ((name.lower(), value) for name, value in headers):
        if name in _OF_A_CONNECTION or name in _NOT_TO_BROWSERS or name in listed:
            continue
        if name == b"set-cookie":
            value = b"" if direct else _confined(value)
            if not value:
                continue
        found.append((name, value))
    return [*found, SANDBOX, NO_SNIFF] if direct else [*found, FRAMES]


def _confined(cookie: bytes) -> bytes:
    """Return a job's cookie without a domain, so that it stays at its origin; nothing if it is named as one of ours."""
    text = cookie.decode("latin-1")
    if cookie_name(text) in OWN_COOKIES or cookie_name(text).startswith(("__Host-rota_", "rota_session")):
        return b""
    parts = text.split(";")
    kept = [parts[0], *(part for part in parts[1:] if part.partition("=")[0].strip().lower() != "domain")]
    return ";".join(kept).encode("latin-1")


def _listed(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Return the headers that a Connection header declares to be of this connection only."""
    values = (value for name, value in headers if name.lower() == b"connection")
    return frozenset(word.strip().lower() for value in values for word in value.split(b","))
