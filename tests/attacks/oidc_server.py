"""An OpenID Connect provider for tests, made of Authlib's server part: code flow with PKCE, device flow, refresh.

It runs as a process of its own (`python oidc_server.py`) and prints its port. `PUT /control` sets the user's claims,
the lifetime of tokens, whether devices are confirmed, and one way in which its ID tokens are forged.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
import sys
import time
from typing import Any

os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"

import flask
import werkzeug.serving
from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2 import rfc6749, rfc7009, rfc7636, rfc8628
from authlib.oidc.core import OpenIDCode, OpenIDToken
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

KEY = RSAKey.generate_key(2048, {"kid": "main"})
OTHER_KEY = RSAKey.generate_key(2048, {"kid": "main"})
CLIENT_ID, CLIENT_SECRET = "rota-tests", "a secret of the client"
CONTROL: dict[str, Any] = {
    "claims": {"sub": "u-1", "preferred_username": "ada", "groups": ["lab"]},
    "forge": None,
    "expires_in": 3600,
    "device": "pending",
    "refresh": True,
    "seen": [],
}
CODES: dict[str, Any] = {}
DEVICES: dict[str, Any] = {}
REFRESH_TOKENS: dict[str, Any] = {}

app = flask.Flask(__name__)


class TestUser:
    def get_user_id(self) -> str:
        return str(CONTROL["claims"]["sub"])


class TestClient(rfc6749.ClientMixin):
    client_id = CLIENT_ID

    def get_client_id(self) -> str:
        return CLIENT_ID

    def get_default_redirect_uri(self) -> str:
        return ""

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri.endswith("/login/callback")

    def check_client_secret(self, client_secret: str) -> bool:
        return client_secret == CLIENT_SECRET

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method in ("client_secret_basic", "none")

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type != "refresh_token" or bool(CONTROL["refresh"])


class TestCode(dict, rfc6749.AuthorizationCodeMixin):  # type: ignore[type-arg]
    def __getattr__(self, name: str) -> Any:
        return self.get(name)

    def get_redirect_uri(self) -> Any:
        return self["redirect_uri"]

    def get_scope(self) -> Any:
        return self["scope"]

    def get_nonce(self) -> Any:
        return self["nonce"]

    def get_auth_time(self) -> Any:
        return int(time.time())

    def get_acr(self) -> None:
        return None

    def get_amr(self) -> None:
        return None


class CodeGrant(rfc6749.AuthorizationCodeGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ["client_secret_basic", "none"]

    def save_authorization_code(self, code: str, request: Any) -> None:
        data = request.payload.data
        CODES[code] = TestCode(
            code=code,
            redirect_uri=data["redirect_uri"],
            scope=data["scope"],
            nonce=data.get("nonce"),
            code_challenge=data.get("code_challenge"),
            code_challenge_method=data.get("code_challenge_method"),
        )

    def query_authorization_code(self, code: str, client: Any) -> Any:
        return CODES.get(code)

    def delete_authorization_code(self, authorization_code: Any) -> None:
        CODES.pop(authorization_code["code"], None)

    def authenticate_user(self, authorization_code: Any) -> TestUser:
        return TestUser()


class DeviceEndpoint(rfc8628.DeviceAuthorizationEndpoint):
    INTERVAL = 1

    def get_verification_uri(self) -> str:
        return f"{flask.request.host_url}device"

    def save_device_credential(self, client_id: str, scope: str, data: dict[str, Any]) -> None:
        DEVICES[data["device_code"]] = rfc8628.DeviceCredentialDict(
            client_id=client_id, scope=scope, user_code=data["user_code"], expires_at=time.time() + 60
        )


class DeviceGrant(rfc8628.DeviceCodeGrant):
    def query_device_credential(self, device_code: str) -> Any:
        return DEVICES.get(device_code)

    def query_user_grant(self, user_code: str) -> Any:
        return None if CONTROL["device"] == "pending" else (TestUser(), CONTROL["device"] == "approved")

    def should_slow_down(self, credential: Any) -> bool:
        return False


class TestRefreshToken(dict, rfc6749.TokenMixin):  # type: ignore[type-arg]
    def check_client(self, client: Any) -> bool:
        return True

    def get_scope(self) -> Any:
        return self["scope"]

    def is_expired(self) -> bool:
        return False

    def is_revoked(self) -> bool:
        return False


class RefreshGrant(rfc6749.RefreshTokenGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ["client_secret_basic", "none"]
    INCLUDE_NEW_REFRESH_TOKEN = True

    def authenticate_refresh_token(self, refresh_token: str) -> Any:
        return REFRESH_TOKENS.get(refresh_token)

    def authenticate_user(self, refresh_token: Any) -> TestUser:
        return TestUser()

    def revoke_old_credential(self, refresh_token: Any) -> None:
        REFRESH_TOKENS.pop(refresh_token["refresh_token"], None)


class Revocation(rfc7009.RevocationEndpoint):
    CLIENT_AUTH_METHODS = ["client_secret_basic", "none"]

    def query_token(self, token_string: str, token_type_hint: str) -> Any:
        return REFRESH_TOKENS.get(token_string)

    def revoke_token(self, token: Any, request: Any) -> None:
        REFRESH_TOKENS.pop(token["refresh_token"], None)
        CONTROL["seen"].append("revoked")


def jwt_config() -> dict[str, Any]:
    issuer = flask.request.host_url.rstrip("/")
    return {"key": KEY.as_dict(private=True), "alg": "RS256", "iss": issuer, "exp": int(CONTROL["expires_in"])}


class CodeIdToken(OpenIDCode):
    def exists_nonce(self, nonce: str, request: Any) -> bool:
        return False

    def get_jwt_config(self, grant: Any, client: Any = None) -> dict[str, Any]:
        return jwt_config()

    def generate_user_info(self, user: Any, scope: str) -> dict[str, Any]:
        return dict(CONTROL["claims"])


class OtherIdToken(OpenIDToken):
    def get_jwt_config(self, grant: Any, client: Any = None) -> dict[str, Any]:
        return jwt_config()

    def generate_user_info(self, user: Any, scope: str) -> dict[str, Any]:
        return dict(CONTROL["claims"])


def save_token(token: dict[str, Any], request: Any) -> None:
    if "refresh_token" in token:
        REFRESH_TOKENS[token["refresh_token"]] = TestRefreshToken(token)


server = AuthorizationServer()
app.config["OAUTH2_REFRESH_TOKEN_GENERATOR"] = True
server.init_app(app, query_client=lambda name: TestClient() if name == CLIENT_ID else None, save_token=save_token)
server.register_grant(CodeGrant, [CodeIdToken(require_nonce=True), rfc7636.CodeChallenge(required=True)])
server.register_grant(DeviceGrant, [OtherIdToken()])
server.register_grant(RefreshGrant, [OtherIdToken()])
server.register_endpoint(DeviceEndpoint(server))
server.register_endpoint(Revocation)


@app.get("/.well-known/openid-configuration")
def metadata() -> Any:
    base = flask.request.host_url.rstrip("/")
    return {
        "issuer": base,
        "authorization_endpoint": f"{base}/authorize",
        "token_endpoint": f"{base}/token",
        "device_authorization_endpoint": f"{base}/device_authorization",
        "revocation_endpoint": f"{base}/revoke",
        "end_session_endpoint": f"{base}/end",
        "jwks_uri": f"{base}/jwks",
        "token_endpoint_auth_methods_supported": ["client_secret_basic", "none"],
    }


@app.get("/jwks")
def jwks() -> Any:
    public = {**KEY.as_dict(private=False), "use": "sig"}
    extra = [OctKey.import_key("known to everybody", {"kid": "shared"}).as_dict(private=True)]
    return {"keys": [public, *extra]}


@app.get("/authorize")
def authorize() -> Any:
    """Confirm at once, as a user who is logged in with the provider."""
    CONTROL["seen"].append(dict(flask.request.args))
    grant = server.get_consent_grant(end_user=TestUser())
    return server.create_authorization_response(grant_user=TestUser(), grant=grant)


@app.post("/token")
def token() -> Any:
    answer = server.create_token_response()
    if isinstance(answer.json, dict) and "id_token" in answer.json:
        values = {**answer.json, "id_token": forged(answer.json["id_token"]), "expires_in": CONTROL["expires_in"]}
        answer.set_data(json.dumps(values))
    return answer


@app.post("/device_authorization")
def device_authorization() -> Any:
    return server.create_endpoint_response(DeviceEndpoint.ENDPOINT_NAME)


@app.post("/revoke")
def revoke() -> Any:
    return server.create_endpoint_response(Revocation.ENDPOINT_NAME)


@app.put("/control")
def control() -> Any:
    CONTROL.update(flask.request.get_json())
    if CONTROL.pop("forget_refresh_tokens", False):
        REFRESH_TOKENS.clear()
    return CONTROL


def part(values: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


def with_hmac(header: dict[str, Any], claims: dict[str, Any], key: bytes) -> str:
    signed = f"{part(header)}.{part(claims)}"
    digest = hmac.digest(key, signed.encode(), "sha256")
    return f"{signed}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


def forged(id_token: str) -> str:
    """Return the ID token, or what an attacker would send instead."""
    claims = dict(jwt.decode(id_token, KEY).claims)
    now = int(time.time())
    changes: dict[str, dict[str, Any]] = {
        "nonce": {"nonce": "of another login"},
        "audience": {"aud": "another-client"},
        "audiences": {"aud": [CLIENT_ID, "another-client"], "azp": "another-client"},
        "issuer": {"iss": "https://evil.example"},
        "expired": {"exp": now - 3600, "iat": now - 7200},
        "future": {"nbf": now + 3600, "iat": now + 3600},
        "at_hash": {"at_hash": "of-another-token"},
    }
    how = CONTROL["forge"]
    header = {"alg": "RS256", "kid": "main"}
    if how == "no-nonce":
        del claims["nonce"]
    claims |= changes.get(how or "", {})
    if how == "none":
        return f"{part({'alg': 'none'})}.{part(claims)}."
    if how == "hs256-public-key":
        return with_hmac({"alg": "HS256", "kid": "main"}, claims, KEY.as_pem(private=False))
    if how == "hs256-shared-key":
        return with_hmac({"alg": "HS256", "kid": "shared"}, claims, b"known to everybody")
    if how == "other-key":
        return jwt.encode(header, claims, OTHER_KEY)
    if how == "own-key":
        embedded = OTHER_KEY.as_dict(private=False)
        return jwt.encode({"alg": "RS256", "jwk": embedded}, claims, OTHER_KEY)
    if how == "payload":
        head, _, signature = jwt.encode(header, claims, KEY).split(".")
        _, body, _ = jwt.encode(header, {**claims, "groups": ["admins"]}, OTHER_KEY).split(".")
        return f"{head}.{body}.{signature}"
    return jwt.encode(header, claims, KEY)


if __name__ == "__main__":
    made = werkzeug.serving.make_server("127.0.0.1", 0, app, threaded=True)
    sys.stdout.write(f"{made.server_port}\n")
    sys.stdout.flush()
    made.serve_forever()
