"""Stored tokens and sessions: by digest, so that they can't be used by a reader of the database."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from sqlalchemy import Engine, String, delete, insert, literal, select, update
from sqlalchemy.exc import IntegrityError

from rota.store.audit import append_audit
from rota.store.schema import identities, tokens

SESSIONS_PER_USER = 20
KEEP_ENDED_S = 86400.0
"""How long a session that has ended is still listed; the audit log keeps it."""


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
    account: str | None = None
    """The Unix account under which its holder's jobs run, if it names one."""
    is_session: bool = False
    """Whether a user logged in, rather than an admin created a token."""

    def is_over(self, now_s: float) -> bool:
        """Whether the token was revoked or has expired."""
        return self.revoked_s is not None or (self.expires_s is not None and self.expires_s < now_s)

    def ended_before(self, at_s: float) -> bool:
        """Whether the token was revoked or expired before a time."""
        return any(end_s is not None and end_s < at_s for end_s in (self.revoked_s, self.expires_s))


class Tokens:
    """All tokens and sessions; every change is also written to the audit log.

    Tokens are in memory and in the database. Sessions are in memory only: they end with the manager.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        with engine.connect() as connection:
            rows = connection.execute(select(tokens).order_by(tokens.c.created_s)).all()
        self._by_digest: dict[str, StoredToken] = {}
        for row in rows:
            fields = {**row._mapping, "tenants": tuple(json.loads(row.tenants))}
            self._by_digest[row.digest] = StoredToken(**fields)

    def find(self, digest: str) -> StoredToken | None:
        """Return the token or session of a digest, or None."""
        return self._by_digest.get(digest)

    def all(self) -> list[StoredToken]:
        """Return all tokens and sessions, oldest first."""
        return list(self._by_digest.values())

    def add(self, token: StoredToken, actor: str) -> None:
        """Store a new token."""
        with self._engine.begin() as connection:
            append_audit(connection, [_entry(token.created_s, actor, "token-create", token, _told(token))])
            connection.execute(insert(tokens), {**_row(token), "tenants": json.dumps(token.tenants)})
        self._by_digest[token.digest] = token

    def open_session(self, session: StoredToken, detail: str) -> None:
        """Add a session; the user's oldest sessions end if there are too many."""
        now_s = session.created_s
        for each in [each for each in self.all() if each.is_session and each.ended_before(now_s - KEEP_ENDED_S)]:
            del self._by_digest[each.digest]
        own = [each for each in self.all() if each.is_session and each.name == session.name and not each.is_over(now_s)]
        for each in own[: max(len(own) - SESSIONS_PER_USER + 1, 0)]:
            self.revoke(each.id, now_s, session.name)
        self._audit(_entry(now_s, session.name, "login", session, detail))
        self._by_digest[session.digest] = session

    def revoke(self, token_id: str, now_s: float, actor: str, why: str = "") -> StoredToken | None:
        """Revoke a token, or end a session; return None if the id is unknown."""
        found = next((token for token in self.all() if token.id == token_id), None)
        if found is None:
            return None
        if found.is_session:
            self._by_digest[found.digest] = revoked = replace(found, revoked_s=now_s)
            self._audit(_entry(now_s, actor, "logout", found, why))
            return revoked
        with self._engine.begin() as connection:
            append_audit(connection, [_entry(now_s, actor, "token-revoke", found, why)])
            connection.execute(update(tokens).where(tokens.c.id == token_id).values(revoked_s=now_s))
        self._by_digest[found.digest] = revoked = replace(found, revoked_s=now_s)
        return revoked

    def extend(self, digest: str, expires_s: float) -> None:
        """Let a session last longer; this is not audited, as its rights do not change."""
        self._by_digest[digest] = replace(self._by_digest[digest], expires_s=expires_s)

    def change(self, digest: str, role: str, tenants: tuple[str, ...], now_s: float, actor: str) -> None:
        """Change the rights of a session."""
        changed = replace(self._by_digest[digest], role=role, tenants=tenants)
        self._by_digest[digest] = changed
        self._audit(_entry(now_s, actor, "session-change", changed, f"tenants {', '.join(tenants) or 'none'}"))

    def _audit(self, entry: dict[str, object]) -> None:
        with self._engine.begin() as connection:
            append_audit(connection, [entry])


class Identities:
    """To which account of which issuer a user's name belongs: the first that used it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def claim(self, name: str, issuer: str, subject: str, *, is_free: bool = True) -> bool:
        """Whether a name belongs to an account; a free name belongs to it from now on."""
        if not is_free:
            return self._belongs(name, issuer, subject)
        try:
            return self._claim(name, issuer, subject)
        except IntegrityError:  # another login claimed the name at the same time
            return self._belongs(name, issuer, subject)

    def _belongs(self, name: str, issuer: str, subject: str) -> bool:
        with self._engine.connect() as connection:
            found = connection.execute(select(identities).where(identities.c.name == name)).first()
        return found is not None and (found.issuer, found.subject) == (issuer, subject)

    def _claim(self, name: str, issuer: str, subject: str) -> bool:
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

    def release(self, name: str, now_s: float, actor: str) -> bool:
        """Forget the account of a name; return whether there was one."""
        entry = {"at_s": now_s, "who": actor, "what": "name-release", "thing": name, "detail": ""}
        with self._engine.begin() as connection:
            if not connection.execute(delete(identities).where(identities.c.name == name)).rowcount:
                return False
            append_audit(connection, [entry])
        return True


def _row(token: StoredToken) -> dict[str, object]:
    return {column.name: getattr(token, column.name) for column in tokens.columns}


def _told(token: StoredToken) -> str:
    """What a new token allows: its tenants, its Unix account, and how long it is valid."""
    until = "" if token.expires_s is None else f"; for {token.expires_s - token.created_s:.0f} s"
    account = "" if token.account is None else f"; account {token.account}"
    return f"tenants {', '.join(token.tenants) or 'none'}{account}{until}"


def _entry(at_s: float, actor: str, action: str, token: StoredToken, detail: str = "") -> dict[str, object]:
    told = f"{token.name} {token.role}" + (f"; {detail}" if detail else "")
    return {"at_s": at_s, "who": actor, "what": action, "thing": token.id, "detail": told}
