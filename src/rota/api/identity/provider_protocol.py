"""What logins need of a provider; separate from its client, whose libraries are loaded only if it is used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rota.api.access import Unknown
from rota.files.oidc_file import OidcFile


class BadIdToken(Unknown):
    """An ID token that the provider did not sign for this manager and this login."""


class ProviderRefused(Unknown):
    """The provider refused a code or a refresh token; `code` is OAuth's name of the error."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderTokens:
    """What the provider answered to a login or a refresh."""

    claims: Mapping[str, Any] | None
    refresh_token: str | None
    expires_in_s: float


class LoginProvider(Protocol):
    """A provider of single sign-on."""

    settings: OidcFile

    async def authorization_url(self, *, redirect_uri: str, state: str, nonce: str, verifier: str) -> str:
        """Return where a browser goes to log in."""

    async def exchange(self, code: str, *, redirect_uri: str, nonce: str, verifier: str) -> ProviderTokens:
        """Exchange an authorization code for tokens, and check the ID token."""

    async def refresh(self, refresh_token: str) -> ProviderTokens:
        """Exchange a refresh token for new tokens."""

    async def begin_device(self) -> dict[str, Any]:
        """Begin a login on another device."""

    async def poll_device(self, device_code: str) -> ProviderTokens:
        """Ask whether the user has confirmed."""

    async def revoke(self, refresh_token: str) -> None:
        """Tell the provider that a refresh token is no longer needed."""

    async def logout_url(self) -> str | None:
        """Return where a browser ends its session with the provider, or None."""

    async def close(self) -> None:
        """Close the connections to the provider."""
