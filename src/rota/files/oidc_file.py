"""The settings of single sign-on: the provider, and how its claims become names, roles and tenants."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from rota.files.document import read_document
from rota.files.durations import Seconds
from rota.files.job_shape import Name
from rota.files.shape import FileModel, checked

Word = Annotated[str, Field(min_length=1, max_length=512)]
MAX_MAPPED = 1000


class OidcFile(FileModel):
    """How users log in with an OpenID Connect provider."""

    issuer: Word
    client_id: Word
    client_secret_file: Path | None = None
    """A file with the client's secret; without one, the client is public and relies on PKCE."""
    scopes: Annotated[list[Word], Field(max_length=50)] = ["openid", "profile", "email"]
    name_claim: Word = "preferred_username"
    roles_claim: Word = "groups"
    roles: Annotated[dict[Literal["admin", "maintainer", "member", "viewer"], list[Word]], Field(max_length=4)]
    """For each role the values of the claim that give it; `*` is every user of the provider."""
    tenants_claim: Word = "groups"
    tenants: Annotated[dict[Name | Literal["*"], list[Word]], Field(max_length=MAX_MAPPED)] = {}
    """For each tenant the values of the claim that give it; the tenant `*` is all tenants."""
    session: Annotated[Seconds, Field(gt=0, le=30 * 86400.0)] = 12 * 3600.0
    """How long a login lasts at most."""

    @field_validator("issuer")
    @classmethod
    def _must_be_secure(cls, issuer: str) -> str:
        if is_secure(issuer):
            return issuer
        raise ValueError(f"{issuer!r} is not an https:// URL; plain http is for providers on this machine only")

    @field_validator("scopes")
    @classmethod
    def _has_openid(cls, scopes: list[str]) -> list[str]:
        return scopes if "openid" in scopes else ["openid", *scopes]


def is_secure(url: str) -> bool:
    """Whether a URL is https, or http on this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(parts.hostname or ""))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_oidc_file(path: Path) -> OidcFile:
    """Return the settings in a file; the file of the secret is seen from where it lies."""
    file = checked(OidcFile, read_document(path), path)
    if file.client_secret_file is None:
        return file
    return file.model_copy(update={"client_secret_file": path.absolute().parent / file.client_secret_file})
