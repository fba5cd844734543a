"""Who may do what. On loopback without tokens whoever can connect is the owner of the machine's manager."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass
from enum import Enum

from fastapi import Request

from rota.core.errors import RotaError
from rota.store.tokens import StoredToken, Tokens


class AccessRole(Enum):
    """What a token's holder may do: everything, what concerns its tenants, or look."""

    ADMIN = "admin"
    MEMBER = "member"
    VIEWER = "viewer"


class Unknown(RotaError):
    """Nobody knows who is asking."""


class Forbidden(RotaError):
    """It is known who is asking, and that may not be done by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Somebody with rights."""

    name: str
    role: AccessRole
    tenants: frozenset[str] | None = None
    """None means all of them."""

    def may_see(self, tenant: str) -> bool:
        """Whether a tenant's jobs may be seen."""
        return self.tenants is None or tenant in self.tenants

    def must_change(self, tenant: str) -> None:
        """Raise unless a tenant's jobs may be changed."""
        if self.role is AccessRole.VIEWER:
            raise Forbidden(f"token {self.name!r} is a viewer's; it can't change anything")
        if not self.may_see(tenant):
            own = ", ".join(sorted(self.tenants or ())) or "none"
            raise Forbidden(f"token {self.name!r} is not for tenant {tenant!r}; its tenants: {own}")

    @property
    def usual_tenant(self) -> str:
        """For whom jobs are that name no tenant: the token's only one, if it has just one."""
        return next(iter(self.tenants)) if self.tenants is not None and len(self.tenants) == 1 else "default"

    def may_change(self, tenant: str) -> bool:
        """Whether a tenant's jobs may be changed."""
        return self.role is not AccessRole.VIEWER and self.may_see(tenant)

    def must_be_admin(self) -> None:
        """Raise unless everything is allowed."""
        if self.role is not AccessRole.ADMIN:
            raise Forbidden(f"token {self.name!r} is a {self.role.value}'s; this takes an admin's")


OWNER = Principal(name="local", role=AccessRole.ADMIN)


def digest_of(secret: str) -> str:
    """What is stored of a token. Tokens are 256 random bits, so that a plain hash can't be searched."""
    return hashlib.sha256(secret.encode()).hexdigest()


class Access:
    """Looks tokens up. `required` is set off loopback: without a token nothing is allowed."""

    def __init__(self, tokens: Tokens, *, required: bool) -> None:
        self._tokens = tokens
        self.required = required

    @property
    def needs_first_token(self) -> bool:
        """Whether nobody can use the manager yet."""
        return self.required and not self._tokens.all()

    def create(
        self, name: str, role: AccessRole, tenants: tuple[str, ...], expires_s: float | None, who: str
    ) -> tuple[StoredToken, str]:
        """A new token, and its secret, which can't be had again."""
        secret = f"rota_{secrets.token_urlsafe(32)}"
        token = StoredToken(
            id=secrets.token_hex(4),
            digest=digest_of(secret),
            name=name,
            role=role.value,
            tenants=tenants,
            created_s=time.time(),
            expires_s=expires_s,
        )
        self._tokens.add(token, who)
        return token, secret

    def revoke(self, token_id: str, who: str) -> StoredToken | None:
        """Make a token worthless; None if there is none of this id."""
        return self._tokens.revoke(token_id, time.time(), who)

    def all(self) -> list[StoredToken]:
        """Every token; their secrets are not known."""
        return self._tokens.all()

    def who(self, request: Request) -> Principal:
        """The holder of the request's token."""
        header = request.headers.get("authorization", "")
        scheme, _, secret = header.partition(" ")
        if not header and not self.required:
            if request.headers.get("origin") or not is_local(request.headers.get("host", "")):
                raise Forbidden("a web page of another site can't use a manager without a token")
            return OWNER
        if scheme.lower() != "bearer" or not secret.strip():
            raise Unknown("this manager needs a token; give it with ROTA_TOKEN or as 'Authorization: Bearer TOKEN'")
        return self.holder(digest_of(secret.strip()))

    def holder(self, digest: str) -> Principal:
        """The holder of a token, by its digest; refuses one that is not worth anything now."""
        token = self._tokens.find(digest)
        if token is None or not hmac.compare_digest(token.digest, digest) or token.revoked_s is not None:
            raise Unknown("the token is not known, or was revoked")
        if token.expires_s is not None and token.expires_s < time.time():
            raise Unknown(f"the token {token.name!r} has expired")
        role = AccessRole(token.role)
        tenants = None if role is AccessRole.ADMIN or "*" in token.tenants else frozenset(token.tenants)
        return Principal(name=token.name, role=role, tenants=tenants)


def is_local(host: str) -> bool:
    """Whether a Host header names this machine: a page that rebinds its name to loopback does not."""
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    return name in ("localhost", "127.0.0.1", "[::1]", "")
