"""Login sessions. The browser keeps a session id in a cookie; the server keeps the digest of its token."""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass

from rota.api.access import OWNER, Access, Principal, Unknown, digest_of
from rota.store import clock

COOKIE = "rota_session"
SECURE_COOKIE = "__Host-rota_session"
"""The cookie's name over TLS: browsers take it from this very host only, not from a sibling."""
LOGIN_COOKIE = "rota_login"
"""A secret that binds a login by single sign-on to the browser in which it was begun."""
DEVICE_COOKIE = "rota_device"
"""The mark of a browser with which a local user has logged in."""
LIFETIME_S = 12 * 3600.0
MAX_SESSIONS = 10_000
SESSIONS_PER_TOKEN = 100
"""The oldest end first, so that no token's many logins end the sessions of others."""


class Sessions:
    """Open sessions, kept in memory only: after a restart users log in again."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[str, float]] = {}

    def open(self, token_digest: str) -> str:
        """Open a session for the holder of a token; return the id for the browser's cookie."""
        now_s = clock.now_s()
        self._open = {name: entry for name, entry in self._open.items() if entry[1] > now_s}
        own = [name for name, entry in self._open.items() if entry[0] == token_digest]
        for oldest in own[: max(len(own) - SESSIONS_PER_TOKEN + 1, 0)]:
            del self._open[oldest]
        while len(self._open) >= MAX_SESSIONS:
            del self._open[next(iter(self._open))]
        name = secrets.token_urlsafe(32)
        self._open[digest_of(name)] = (token_digest, now_s + LIFETIME_S)
        return name

    def token(self, name: str) -> str | None:
        """Return the digest of a session's token, or None if the session has expired or never existed."""
        token_digest, until_s = self._open.get(digest_of(name), ("", 0.0))
        return token_digest if until_s > clock.now_s() else None

    def close(self, name: str) -> str | None:
        """End a session; return the digest of its token, or None."""
        found = self._open.pop(digest_of(name), None)
        return None if found is None else found[0]


@dataclass(frozen=True, slots=True)
class Visitor:
    """A browser session. Its principal is looked up on each use: a token can be revoked while a page is open."""

    access: Access
    sessions: Sessions
    session: str

    def principal(self) -> Principal:
        """Return the visitor's principal; raises `Unknown` if a token is required and there is none."""
        if not self.access.required:
            return OWNER
        token_digest = self.token_digest()
        if token_digest is None:
            raise Unknown("log in with a token")
        return self.access.holder(token_digest)

    def token_digest(self) -> str | None:
        """Return the digest of the token that the session was opened with; None if there is no such session."""
        return self.sessions.token(self.session)

    def is_known(self) -> bool:
        """Whether the visitor is logged in, or needs no token."""
        try:
            self.principal()
        except Unknown:
            return False
        return True

    def is_same_as(self, other: Visitor) -> bool:
        """Whether another request is of the same session."""
        return bool(self.session) and hmac.compare_digest(self.session.encode(), other.session.encode())
