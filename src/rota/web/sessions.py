"""Who looks at the pages. A browser holds the name of a session in a cookie; its token stays here, as a digest."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass

from rota.api.access import OWNER, Access, Principal, Unknown, digest_of

COOKIE = "rota_session"
LASTS_S = 12 * 3600.0
MOST = 10_000


class Sessions:
    """Open sessions, in memory only: after a restart one logs in again."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[str, float]] = {}

    def open(self, token_digest: str) -> str:
        """A session for a token's holder; the name that its browser keeps."""
        now_s = time.time()
        self._open = {name: entry for name, entry in self._open.items() if entry[1] > now_s}
        while len(self._open) >= MOST:
            del self._open[next(iter(self._open))]
        name = secrets.token_urlsafe(32)
        self._open[digest_of(name)] = (token_digest, now_s + LASTS_S)
        return name

    def token(self, name: str) -> str | None:
        """The digest of the token that a session is of; None if it is over or never was."""
        token_digest, until_s = self._open.get(digest_of(name), ("", 0.0))
        return token_digest if until_s > time.time() else None

    def close(self, name: str) -> None:
        """Forget a session."""
        self._open.pop(digest_of(name), None)


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody at a browser. Who that is is asked each time: a token can be revoked while a page is open."""

    access: Access
    sessions: Sessions
    session: str

    def principal(self) -> Principal:
        """Whose rights the visitor has; raises where a token is needed and there is none."""
        if not self.access.required:
            return OWNER
        token_digest = self.sessions.token(self.session)
        if token_digest is None:
            raise Unknown("log in with a token")
        return self.access.holder(token_digest)

    def is_known(self) -> bool:
        """Whether the visitor may look at all."""
        try:
            self.principal()
        except Unknown:
            return False
        return True
