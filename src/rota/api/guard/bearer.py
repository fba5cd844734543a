"""The one reader of the token that a request carries.

Access, rates, the end of streams and the check of local users must see the same token: where one of them reads another
header, or the same one in another way, a request passes each check by a token of its own.
"""

from __future__ import annotations

from typing import Any

_WITH_TOKENS = ("/api/", "/metrics", "/proxy/")
"""Paths that answer by token. Pages answer by session, whatever else their requests carry."""


def bearer(header: str) -> str:
    """Return the token in an Authorization header; empty if it holds none."""
    scheme, _, secret = header.partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""


def token_of(scope: Any) -> str:
    """Return the token by which a request is answered, that of its first Authorization header; empty if it has none."""
    if not scope["path"].startswith(_WITH_TOKENS):
        return ""
    headers = (value for name, value in scope["headers"] if name == b"authorization")
    return bearer(next(headers, b"").decode("latin-1"))
