"""Access control. On loopback without tokens, every caller that can connect is the owner of the manager."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, replace
from enum import Enum

from starlette.requests import HTTPConnection

from rota.api.guard.bearer import bearer
from rota.core.errors import RotaError
from rota.live.intake.audit_entry import Asker
from rota.store import clock
from rota.store.tokens import StoredToken, Tokens


class AccessRole(Enum):
    """What the holder of a token may do: everything, act on all jobs of its tenants, on its own jobs, or read."""

    ADMIN = "admin"
    MAINTAINER = "maintainer"
    MEMBER = "member"
    VIEWER = "viewer"


class Unknown(RotaError):
    """The caller is not authenticated."""


class Forbidden(RotaError):
    """The caller is authenticated, but lacks the right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """An authenticated caller and its rights."""

    name: str
    role: AccessRole
    tenants: frozenset[str] | None = None
    """None means all tenants."""
    account: str | None = None
    """The Unix account under which its jobs run, if its token names one."""

    def may_see(self, tenant: str) -> bool:
        """Whether the caller may see a tenant's jobs."""
        return self.tenants is None or tenant in self.tenants

    def must_change(self, tenant: str) -> None:
        """Raise `Forbidden` unless the caller may change a tenant's jobs."""
        if self.role is AccessRole.VIEWER:
            raise Forbidden(f"token {self.name!r} has the role viewer, which can't change anything")
        self.must_see(tenant)

    def must_see(self, tenant: str) -> None:
        """Raise `Forbidden` unless the caller may see a tenant's jobs."""
        if not self.may_see(tenant):
            own = ", ".join(sorted(self.tenants or ())) or "none"
            raise Forbidden(f"token {self.name!r} is not valid for tenant {tenant[:64]!r}; its tenants: {own}")

    def may_act_on(self, tenant: str, owner: str) -> bool:
        """Whether the caller may change a job: its own, or any of the tenant as maintainer or admin."""
        return self.may_change(tenant) and (self.role is not AccessRole.MEMBER or owner == self.name)

    def must_act_on(self, tenant: str, owner: str, job_id: str) -> None:
        """Raise `Forbidden` unless the caller may change a job."""
        self.must_change(tenant)
        if not self.may_act_on(tenant, owner):
            raise Forbidden(
                f"job {job_id} belongs to {owner or 'another user'!r}; token {self.name!r} has the role member, which "
                "changes only its own jobs; ask its owner, or a maintainer of the tenant"
            )

    @property
    def asker(self) -> Asker:
        """The caller as the origin of a change."""
        return Asker(name=self.name, role=self.role.value, account=self.account)

    @property
    def default_tenant(self) -> str:
        """The tenant of jobs that name none: the token's tenant if it has exactly one."""
        return next(iter(self.tenants)) if self.tenants is not None and len(self.tenants) == 1 else "default"

    def may_change(self, tenant: str) -> bool:
        """Whether the caller may change a tenant's jobs."""
        return self.role is not AccessRole.VIEWER and self.may_see(tenant)

    def must_be_admin(self) -> None:
        """Raise `Forbidden` unless the caller is an admin."""
        if self.role is not AccessRole.ADMIN:
            raise Forbidden(f"token {self.name!r} has the role {self.role.value}; this needs the role admin")


OWNER = Principal(name="local", role=AccessRole.ADMIN)


def digest_of(secret: str) -> str:
    """Return the digest under which a token is stored; tokens have 256 random bits, so a plain hash is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()


class Access:
    """Authenticates tokens. With `required`, as on addresses other than loopback, every request needs one."""

    def __init__(self, tokens: Tokens, *, required: bool) -> None:
        self._tokens = tokens
        self.required = required

    @property
    def needs_first_token(self) -> bool:
        """Whether a token is required and none exists yet."""
        return self.required and not self._tokens.all()

    def create(
        self,
        name: str,
        role: AccessRole,
        tenants: tuple[str, ...],
        expires_s: float | None,
        actor: str,
        account: str | None = None,
    ) -> tuple[StoredToken, str]:
        """Create a token; return it with its secret, which is not stored."""
        token, secret = _made("rota_", name, role, tenants, expires_s, account)
        self._tokens.add(token, actor)
        return token, secret

    def open_session(
        self, name: str, role: AccessRole, tenants: tuple[str, ...], expires_s: float, detail: str
    ) -> tuple[StoredToken, str]:
        """Open a session for a user who has logged in; return it with its secret, which is not stored."""
        made, secret = _made("rota_s_", name, role, tenants, expires_s)
        session = replace(made, is_session=True)
        self._tokens.open_session(session, detail)
        return session, secret

    def extend_session(self, digest: str, expires_s: float) -> None:
        """Let a session last longer."""
        self._tokens.extend(digest, expires_s)

    def change_session(self, digest: str, role: AccessRole, tenants: tuple[str, ...], actor: str) -> None:
        """Change the rights of a session."""
        self._tokens.change(digest, role.value, tenants, clock.now_s(), actor)

    def stored(self, digest: str) -> StoredToken | None:
        """Return the token or session of a digest, or None."""
        return self._tokens.find(digest)

    def has_token(self, name: str) -> bool:
        """Whether an admin created a token for a name that is still valid; sessions do not count."""
        now_s = clock.now_s()
        return any(each.name == name and not each.is_session and not each.is_over(now_s) for each in self._tokens.all())

    def is_valid(self, digest: str) -> bool:
        """Whether a token is known, not revoked and not expired."""
        token = self._tokens.find(digest)
        return token is not None and not token.is_over(clock.now_s())

    def revoke(self, token_id: str, actor: str) -> StoredToken | None:
        """Revoke a token; return None if the id is unknown."""
        return self._tokens.revoke(token_id, clock.now_s(), actor)

    def end_session(self, digest: str, actor: str, why: str = "") -> None:
        """End the session of a digest; tokens that an admin created stay valid."""
        found = self._tokens.find(digest)
        if found is not None and found.is_session and found.revoked_s is None:
            self._tokens.revoke(found.id, clock.now_s(), actor, why)

    def all(self) -> list[StoredToken]:
        """Return all tokens, without secrets."""
        return self._tokens.all()

    def authenticate(self, request: HTTPConnection) -> Principal:
        """Return the holder of the request's token; raises `Unknown` or `Forbidden`."""
        found = self._authenticated(request)
        request.state.caller = found.name
        return found

    def _authenticated(self, request: HTTPConnection) -> Principal:
        header = request.headers.get("authorization", "")
        if not header and not self.required:
            if request.headers.get("origin") or not is_local(request.headers.get("host", "")):
                raise Forbidden("cross-origin requests are not allowed without a token")
            return OWNER
        secret = bearer(header)
        if not secret:
            raise Unknown(
                "this manager requires a token; set ROTA_TOKEN, log in with `rota login`, "
                "or send 'Authorization: Bearer TOKEN'"
            )
        return self.holder(digest_of(secret))

    def holder(self, digest: str) -> Principal:
        """Return the holder of a token by its digest; raises `Unknown` if it is unknown, revoked or expired."""
        token = self._tokens.find(digest)
        if token is None or not hmac.compare_digest(token.digest, digest) or token.revoked_s is not None:
            raise Unknown("the token is unknown or was revoked")
        if token.is_over(clock.now_s()):
            kind = "session of" if token.is_session else "token"
            raise Unknown(f"the {kind} {token.name!r} has expired")
        role = AccessRole(token.role)
        tenants = None if role is AccessRole.ADMIN or "*" in token.tenants else frozenset(token.tenants)
        return Principal(name=token.name, role=role, tenants=tenants, account=token.account)


def _made(
    prefix: str,
    name: str,
    role: AccessRole,
    tenants: tuple[str, ...],
    expires_s: float | None,
    account: str | None = None,
) -> tuple[StoredToken, str]:
    """Return a new token with its secret, which begins with a prefix."""
    secret = f"{prefix}{secrets.token_urlsafe(32)}"
    token = StoredToken(
        id=secrets.token_hex(4),
        digest=digest_of(secret),
        name=name,
        role=role.value,
        tenants=tenants,
        created_s=clock.now_s(),
        expires_s=expires_s,
        account=account,
    )
    return token, secret


def is_local(host: str) -> bool:
    """Whether a Host header names this machine; protects against DNS rebinding."""
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    return name in ("localhost", "127.0.0.1", "[::1]", "")
