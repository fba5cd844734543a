"""Stored tokens: by digest, so that they can't be used by a reader of the database."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sqlalchemy import Engine, insert, select, update

from rota.store.schema import audit, tokens


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

    def add(self, token: StoredToken, actor: str) -> None:
        """Store a new token."""
        row = {name: getattr(token, name) for name in StoredToken.__slots__}
        with self._engine.begin() as connection:
            connection.execute(insert(tokens), {**row, "tenants": json.dumps(token.tenants)})
            connection.execute(insert(audit), _entry(token.created_s, actor, "token-create", token))
        self._by_digest[token.digest] = token

    def revoke(self, token_id: str, now_s: float, actor: str) -> StoredToken | None:
        """Revoke a token; return None if the id is unknown."""
        found = next((token for token in self._by_digest.values() if token.id == token_id), None)
        if found is None:
            return None
        with self._engine.begin() as connection:
            connection.execute(update(tokens).where(tokens.c.id == token_id).values(revoked_s=now_s))
            connection.execute(insert(audit), _entry(now_s, actor, "token-revoke", found))
        row = {name: getattr(found, name) for name in StoredToken.__slots__}
        revoked = StoredToken(**{**row, "revoked_s": now_s})
        self._by_digest[found.digest] = revoked
        return revoked


def _entry(at_s: float, actor: str, action: str, token: StoredToken) -> dict[str, object]:
    return {"at_s": at_s, "who": actor, "what": action, "thing": token.id, "detail": f"{token.name} {token.role}"}
