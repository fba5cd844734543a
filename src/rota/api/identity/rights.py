"""Turns the claims of an ID token into a user with a role and tenants, by the manager's settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rota.api.access import AccessRole, Forbidden
from rota.files.oidc_file import OidcFile
from rota.store.user_file import is_user_name

EVERY = "*"
ORDER = (AccessRole.ADMIN, AccessRole.MAINTAINER, AccessRole.MEMBER, AccessRole.VIEWER)
"""The most powerful role that the claims give is taken."""
MAX_VALUES = 10_000


class LoginRefused(Forbidden):
    """A login was refused: the user is known to the provider, but may not use this manager."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRights:
    """A user as the claims describe it."""

    name: str
    subject: str
    role: AccessRole
    tenants: tuple[str, ...]


def rights_of(claims: Mapping[str, Any], settings: OidcFile) -> UserRights:
    """Return the user of validated claims; raises `LoginRefused` if they give no role or no usable name."""
    name = claims.get(settings.name_claim)
    if not isinstance(name, str) or not is_user_name(name):
        raise LoginRefused(
            f"the claim {settings.name_claim!r} is {_shown(name)}, which is not a user name; "
            "an admin can choose another claim with name_claim"
        )
    role = next(
        (role for role in ORDER if _gives(claims, settings.roles_claim, settings.roles.get(role.value, ()))), None
    )
    if role is None:
        raise LoginRefused(
            f"user {name!r} has no role on this manager: the claim {settings.roles_claim!r} has no value of `roles`"
        )
    tenants = sorted(
        tenant for tenant, values in settings.tenants.items() if _gives(claims, settings.tenants_claim, values)
    )
    return UserRights(name=name, subject=str(claims["sub"]), role=role, tenants=tuple(tenants))


def _gives(claims: Mapping[str, Any], claim: str, values: Sequence[str]) -> bool:
    return EVERY in values or not _values(claims, claim).isdisjoint(values)


def _values(claims: Mapping[str, Any], claim: str) -> set[str]:
    """Return the values of a claim; a dotted name leads into nested claims, e.g. `realm_access.roles`."""
    found: Any = claims.get(claim)
    if found is None and "." in claim:
        found = claims
        for part in claim.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    if isinstance(found, str):
        return {found}
    return {value for value in found[:MAX_VALUES] if isinstance(value, str)} if isinstance(found, list) else set()


def _shown(value: object) -> str:
    return "missing" if value is None else repr(value)[:60]
