"""Tokens as they are kept: by digest, so that whoever reads the database can't use them."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sqlalchemy import Engine, insert, select, update

from rota.store.schema import audit, tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredToken:
    """A token: who holds it, what for, until when. `tenants` with `*` in it means all."""

    id: str
    digest: str
    name: str
    role: str
    tenants: tuple[str, ...]
    created_s: float
    expires_s: float | None = None
    revoked_s: float | None = None


class Tokens:
    """All tokens, in memory and in the database; every change is written to the audit log with it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        with engine.connect() as connection:
            rows = connection.execute(select(tokens).order_by(tokens.c.created_s)).all()
        self._by_digest: dict[str, StoredToken] = {}
        for row in rows:
            fields = {**row._mapping, "tenants": tuple(json.loads(row.tenants))}
            self._by_digest[row.digest] = StoredToken(**fields)

    def find(self, digest: str) -> StoredToken | None:
        """The token of a digest."""
        return self._by_digest.get(digest)

    def all(self) -> list[StoredToken]:
        """Every token, oldest first."""
        return list(self._by_digest.values())

    def add(self, token: StoredToken, who: str) -> None:
        """Keep a new token."""
        row = {name: getattr(token, name) for name in StoredToken.__slots__}
        with self._engine.begin() as connection:
            connection.execute(insert(tokens), {**row, "tenants": json.dumps(token.tenants)})
            connection.execute(insert(audit), _entry(token.created_s, who, "token-create", token))
        self._by_digest[token.digest] = token

    def revoke(self, token_id: str, now_s: float, who: str) -> StoredToken | None:
        """Make a token worthless; None if there is none of this id."""
        found = next((token for token in self._by_digest.values() if token.id == token_id), None)
        if found is None:
            return None
        with self._engine.begin() as connection:
            connection.execute(update(tokens).where(tokens.c.id == token_id).values(revoked_s=now_s))
            connection.execute(insert(audit), _entry(now_s, who, "token-revoke", found))
        row = {name: getattr(found, name) for name in StoredToken.__slots__}
        gone = StoredToken(**{**row, "revoked_s": now_s})
        self._by_digest[found.digest] = gone
        return gone


def _entry(at_s: float, who: str, what: str, token: StoredToken) -> dict[str, object]:
    return {"at_s": at_s, "who": who, "what": what, "thing": token.id, "detail": f"{token.name} {token.role}"}
