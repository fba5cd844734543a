"""An OpenID Connect provider: its endpoints and keys, its tokens, and the checks of the ID tokens that it signs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

import httpx
from authlib.oauth2.auth import ClientAuth
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri, prepare_token_request
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry

from rota.api.identity.provider_protocol import BadIdToken, ProviderRefused, ProviderTokens
from rota.core.errors import Unavailable
from rota.files.oidc_file import OidcFile, is_secure

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Signatures with public keys only: neither `none` nor HMAC, whose key could be a public one."""
TIMEOUT_S = 10.0
LEEWAY_S = 60
MAX_ANSWER = 1 << 20
METADATA_S = 3600.0
KEYS_AGAIN_S = 30.0
"""How often unknown keys may cause the provider's keys to be fetched again."""
_FORM = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}


class OidcProvider:
    """The client of one provider."""

    def __init__(self, settings: OidcFile, secret: str | None, client: httpx.AsyncClient | None = None) -> None:
        self.settings = settings
        self._secret = secret
        self._http = client or httpx.AsyncClient(timeout=TIMEOUT_S, follow_redirects=False)
        self._metadata: tuple[float, dict[str, Any]] | None = None
        self._keys: tuple[float, KeySet] | None = None
        self._lock = asyncio.Lock()

    async def close(self) -> None:
        """Close the connections to the provider."""
        await self._http.aclose()

    # -- logins ----------------------------------------------------------------------------------

    async def authorization_url(self, *, redirect_uri: str, state: str, nonce: str, verifier: str) -> str:
        """Return where a browser goes to log in."""
        return str(
            prepare_grant_uri(
                await self._endpoint("authorization_endpoint"),
                client_id=self.settings.client_id,
                response_type="code",
                redirect_uri=redirect_uri,
                scope=" ".join(self.settings.scopes),
                state=state,
                nonce=nonce,
                code_challenge=create_s256_code_challenge(verifier),
                code_challenge_method="S256",
            )
        )

    async def exchange(self, code: str, *, redirect_uri: str, nonce: str, verifier: str) -> ProviderTokens:
        """Exchange an authorization code for tokens, and check the ID token."""
        body = prepare_token_request("authorization_code", code=code, redirect_uri=redirect_uri, code_verifier=verifier)
        return await self._tokens(body, nonce=nonce)

    async def refresh(self, refresh_token: str) -> ProviderTokens:
        """Exchange a refresh token for new tokens."""
        return await self._tokens(prepare_token_request("refresh_token", refresh_token=refresh_token), is_refresh=True)

    async def begin_device(self) -> dict[str, Any]:
        """Begin a login on another device: return its code for the user, and the one to poll with."""
        endpoint = await self._endpoint("device_authorization_endpoint")
        answer = await self._post(endpoint, str(httpx.QueryParams({"scope": " ".join(self.settings.scopes)})))
        if not all(isinstance(answer.get(name), str) for name in ("device_code", "user_code", "verification_uri")):
            raise Unavailable(f"the provider {self.settings.issuer} did not answer as RFC 8628 says")
        return answer

    async def poll_device(self, device_code: str) -> ProviderTokens:
        """Ask whether the user has confirmed; raises `ProviderRefused` with `authorization_pending` until then."""
        return await self._tokens(prepare_token_request(DEVICE_GRANT, device_code=device_code))

    async def revoke(self, refresh_token: str) -> None:
        """Tell the provider that a refresh token is no longer needed, if it wants to know."""
        endpoint = (await self.metadata()).get("revocation_endpoint")
        if isinstance(endpoint, str):
            form = {"token": refresh_token, "token_type_hint": "refresh_token"}
            await self._post(endpoint, str(httpx.QueryParams(form)))

    async def logout_url(self) -> str | None:
        """Return where a browser ends its session with the provider, or None."""
        found = (await self.metadata()).get("end_session_endpoint")
        return found if isinstance(found, str) and found.startswith(("https://", "http://")) else None

    # -- HTTP ------------------------------------------------------------------------------------

    async def metadata(self) -> dict[str, Any]:
        """Return the provider's description of itself."""
        async with self._lock:
            if self._metadata is None or time.monotonic() - self._metadata[0] > METADATA_S:
                found = await self._get(f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration")
                if str(found.get("issuer", "")).rstrip("/") != self.settings.issuer.rstrip("/"):
                    raise Unavailable(f"the provider at {self.settings.issuer} says it is {found.get('issuer')!r}")
                self._metadata = (time.monotonic(), found)
            return self._metadata[1]

    async def _endpoint(self, name: str) -> str:
        found = (await self.metadata()).get(name)
        if not isinstance(found, str):
            what = "the device flow" if name.startswith("device") else name
            raise Unavailable(f"the provider {self.settings.issuer} does not offer {what}; log in another way")
        if not is_secure(found):
            raise Unavailable(f"the provider's {name} is {found!r}, which is not an https:// URL")
        return found

    async def _tokens(self, body: str, *, nonce: str | None = None, is_refresh: bool = False) -> ProviderTokens:
        answer = await self._post(await self._endpoint("token_endpoint"), body)
        id_token, refresh_token, access_token = (answer.get(f"{kind}_token") for kind in ("id", "refresh", "access"))
        claims: Mapping[str, Any] | None = None
        if isinstance(id_token, str):
            claims = await self.check(id_token, nonce=nonce, access_token=access_token)
        elif not is_refresh:
            raise BadIdToken("the provider returned no ID token")
        expires = answer.get("expires_in")
        return ProviderTokens(
            claims=await self._complete(claims, access_token),
            refresh_token=refresh_token if isinstance(refresh_token, str) else None,
            expires_in_s=float(expires) if isinstance(expires, int | float) and 0 < expires < 1e9 else 3600.0,
        )

    async def _complete(self, claims: Mapping[str, Any] | None, access_token: object) -> Mapping[str, Any] | None:
        """Return the claims, with those of the user-info endpoint where the ID token lacks one that is mapped."""
        file = self.settings
        mapped = {name.partition(".")[0] for name in (file.name_claim, file.roles_claim, file.tenants_claim)}
        if claims is not None and mapped <= claims.keys():
            return claims
        if not isinstance(access_token, str) or "userinfo_endpoint" not in await self.metadata():
            return claims
        headers = {"Accept": "application/json", "Authorization": f"Bearer {access_token}"}
        url = await self._endpoint("userinfo_endpoint")
        info = _object(await self._answer("GET", url, b"", headers), url)
        if claims is not None and info.get("sub") != claims["sub"]:
            raise BadIdToken("the provider's user info is of another user")
        return {**info, **(claims or {})}

    async def _get(self, url: str) -> dict[str, Any]:
        return _object(await self._answer("GET", url, b"", {"Accept": "application/json"}), url)

    async def _post(self, url: str, body: str) -> dict[str, Any]:
        method = "none" if self._secret is None else "client_secret_basic"
        supported = (await self.metadata()).get("token_endpoint_auth_methods_supported")
        if self._secret is not None and isinstance(supported, list) and method not in supported:
            method = "client_secret_post"
        auth = ClientAuth(self.settings.client_id, self._secret, method)
        url, headers, body = auth.prepare("POST", url, dict(_FORM), body)
        status, content = await self._answer("POST", url, body.encode(), headers)
        if 400 <= status < 500:
            try:
                told = _object((200, content), url)
            except Unavailable:
                told = {}
            code = str(told.get("error", f"HTTP {status}"))[:64]
            raise ProviderRefused(f"the provider refused: {told.get('error_description') or code}"[:300], code)
        return _object((status, content), url) if content else {}

    async def _answer(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        try:
            async with self._http.stream(method, url, content=body, headers=dict(headers)) as answer:
                content = b""
                async for piece in answer.aiter_bytes():
                    content += piece
                    if len(content) > MAX_ANSWER:
                        raise Unavailable(f"the provider's answer from {url} is larger than {MAX_ANSWER >> 20} MiB")
                return answer.status_code, content
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unavailable(f"the provider at {url} does not answer: {error or type(error).__name__}") from error

    # -- ID tokens -------------------------------------------------------------------------------

    async def check(self, id_token: str, *, nonce: str | None, access_token: object = None) -> Mapping[str, Any]:
        """Return the claims of an ID token: signed by the provider, for this client, in time, and with the nonce."""
        try:
            try:
                token = self._decoded(id_token, await self._key_set())
            except InvalidKeyIdError:
                token = self._decoded(id_token, await self._key_set(again=True))
            issuer = str((await self.metadata())["issuer"])
            options: dict[str, Any] = {"iss": {"essential": True, "value": issuer}, "sub": {"essential": True}}
            options["aud"] = {"essential": True, "value": self.settings.client_id}
            params = {"nonce": nonce, "client_id": self.settings.client_id, "access_token": access_token}
            claims = CodeIDToken(token.claims, token.header, options, params)
            claims.validate(leeway=LEEWAY_S)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise BadIdToken(f"the ID token can't be trusted: {str(error)[:200] or type(error).__name__}") from error
        return dict(claims)

    def _decoded(self, id_token: str, keys: KeySet) -> jwt.Token:
        return jwt.decode(id_token, key=keys, registry=JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False))

    async def _key_set(self, *, again: bool = False) -> KeySet:
        endpoint = await self._endpoint("jwks_uri")
        async with self._lock:
            age_s = float("inf") if self._keys is None else time.monotonic() - self._keys[0]
            if self._keys is None or age_s > METADATA_S or (again and age_s > KEYS_AGAIN_S):
                found = await self._get(endpoint)
                self._keys = (time.monotonic(), KeySet.import_key_set({"keys": _public(found)}))
            return self._keys[1]


def _public(found: dict[str, Any]) -> list[Any]:
    """Return the public keys of a key set; symmetric keys are never used for signatures."""
    keys = found.get("keys")
    if not isinstance(keys, list):
        raise ValueError("the provider's keys are not a JWK set")
    return [key for key in keys if isinstance(key, dict) and key.get("kty") != "oct" and key.get("use") != "enc"]


def _object(answer: tuple[int, bytes], url: str) -> dict[str, Any]:
    status, content = answer
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if status >= 300 or not isinstance(found, dict):
        raise Unavailable(f"the provider's answer from {url} is HTTP {status} and not a JSON object")
    return found
