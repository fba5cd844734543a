"""Stored tokens and sessions: by digest, so that they can't be used by a reader of the database."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import Enum

from sqlalchemy import Engine, String, delete, insert, literal, select, update

from rota.store.audit import append_audit
from rota.store.schema import identities, tokens

SESSIONS_PER_USER = 20
KEEP_ENDED_S = 86400.0
"""How long a session that has ended is still listed; the audit log keeps it."""


class TokenKind(Enum):
    """How a token came to be: an admin created it, or a user logged in."""

    TOKEN = "token"
    SESSION = "session"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredToken:
    """A token: its holder, role, tenants and expiry. `*` among the tenants means all."""

    id: str
    digest: str
    name: str
    role: str
    tenants: tuple[str, ...]
    created_s: float
    expires_s: float | None = None
    revoked_s: float | None = None
    kind: str = TokenKind.TOKEN.value

    def is_over(self, now_s: float) -> bool:
        """Whether the token was revoked or has expired."""
        return self.revoked_s is not None or (self.expires_s is not None and self.expires_s < now_s)

    def ended_before(self, at_s: float) -> bool:
        """Whether the token was revoked or expired before a time."""
        return any(end_s is not None and end_s < at_s for end_s in (self.revoked_s, self.expires_s))


class Tokens:
    """All tokens, in memory and in the database; every change is also written to the audit log."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        with engine.connect() as connection:
            rows = connection.execute(select(tokens).order_by(tokens.c.created_s)).all()
        self._by_digest: dict[str, StoredToken] = {}
        for row in rows:
            fields = {**row._mapping, "tenants": tuple(json.loads(row.tenants))}
            self._by_digest[row.digest] = StoredToken(**fields)

    def find(self, digest: str) -> StoredToken | None:
        """Return the token of a digest, or None."""
        return self._by_digest.get(digest)

    def all(self) -> list[StoredToken]:
        """Return all tokens, oldest first."""
        return list(self._by_digest.values())

    def add(self, token: StoredToken, actor: str, detail: str = "") -> None:
        """Store a new token; of a user's sessions, the oldest ends when there are too many."""
        is_session = token.kind == TokenKind.SESSION.value
        if is_session:
            self._make_room(token)
        with self._engine.begin() as connection:
            append_audit(
                connection, [_entry(token.created_s, actor, "login" if is_session else "token-create", token, detail)]
            )
            connection.execute(insert(tokens), {**_row(token), "tenants": json.dumps(token.tenants)})
        self._by_digest[token.digest] = token

    def _make_room(self, token: StoredToken) -> None:
        """Delete sessions that ended long ago, and end the user's oldest sessions."""
        sessions = [each for each in self.all() if each.kind == TokenKind.SESSION.value]
        old = [each for each in sessions if each.ended_before(token.created_s - KEEP_ENDED_S)]
        if old:
            with self._engine.begin() as connection:
                connection.execute(delete(tokens).where(tokens.c.id.in_([each.id for each in old])))
            for each in old:
                del self._by_digest[each.digest]
        own = [each for each in sessions if each.name == token.name and not each.is_over(token.created_s)]
        for each in own[: max(len(own) - SESSIONS_PER_USER + 1, 0)]:
            self.revoke(each.id, token.created_s, token.name)

    def revoke(self, token_id: str, now_s: float, actor: str) -> StoredToken | None:
        """Revoke a token, or end a session; return None if the id is unknown."""
        found = next((token for token in self._by_digest.values() if token.id == token_id), None)
        if found is None:
            return None
        what = "logout" if found.kind == TokenKind.SESSION.value else "token-revoke"
        revoked = replace(found, revoked_s=now_s)
        self._update(revoked, _entry(now_s, actor, what, found), {"revoked_s": now_s})
        return revoked

    def extend(self, digest: str, expires_s: float) -> None:
        """Let a session last longer; this is not audited, as nobody's rights change."""
        found = self._by_digest[digest]
        with self._engine.begin() as connection:
            connection.execute(update(tokens).where(tokens.c.id == found.id).values(expires_s=expires_s))
        self._by_digest[digest] = replace(found, expires_s=expires_s)

    def change(self, digest: str, role: str, tenants: tuple[str, ...], now_s: float, actor: str) -> None:
        """Change the rights of a session, as its user's claims have changed."""
        changed = replace(self._by_digest[digest], role=role, tenants=tenants)
        entry = _entry(now_s, actor, "session-change", changed, f"tenants {', '.join(tenants) or 'none'}")
        self._update(changed, entry, {"role": role, "tenants": json.dumps(tenants)})

    def _update(self, token: StoredToken, entry: dict[str, object], values: dict[str, object]) -> None:
        with self._engine.begin() as connection:
            append_audit(connection, [entry])
            connection.execute(update(tokens).where(tokens.c.id == token.id).values(**values))
        self._by_digest[token.digest] = token


class Identities:
    """To which account of which issuer a user's name belongs: the first that used it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def claim(self, name: str, issuer: str, subject: str) -> bool:
        """Whether a name belongs to an account; a free name belongs to it from now on."""
        with self._engine.begin() as connection:
            wanted = {"name": name, "issuer": issuer, "subject": subject}
            # Write first: after a read, SQLite refuses a write if another connection has written meanwhile.
            connection.execute(
                insert(identities).from_select(
                    list(wanted),
                    select(*(literal(value, String) for value in wanted.values())).where(
                        ~select(identities.c.name).where(identities.c.name == name).exists()
                    ),
                )
            )
            found = connection.execute(select(identities).where(identities.c.name == name)).one()
        return (found.issuer, found.subject) == (issuer, subject)

    def release(self, name: str, issuer: str) -> None:
        """Forget the account of a name, if it is one of this issuer."""
        with self._engine.begin() as connection:
            connection.execute(delete(identities).where(identities.c.name == name, identities.c.issuer == issuer))


def _row(token: StoredToken) -> dict[str, object]:
    return {name: getattr(token, name) for name in StoredToken.__slots__}


def _entry(at_s: float, actor: str, action: str, token: StoredToken, detail: str = "") -> dict[str, object]:
    told = f"{token.name} {token.role}" + (f"; {detail}" if detail else "")
    return {"at_s": at_s, "who": actor, "what": action, "thing": token.id, "detail": told}
