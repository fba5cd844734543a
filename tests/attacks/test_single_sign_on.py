"""Logins with an OpenID Connect provider: what works, and what a forger tries."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from attacks.logins import by_device, logged_in
from attacks.session_calls import TimedStream, ask, post_form
from attacks.single_sign_on import ADA, Provider, begin, finish, is_logged_in, manager_for
from managers import Manager, eventually
from rota.sdk.client import Client, Refused
from rota.store.user_file import LocalUser, changed_users, hash_password

attack = pytest.mark.attack
pytestmark = pytest.mark.slow


# -- what works -----------------------------------------------------------------------------------


def test_browser_logs_in_with_pkce_state_and_nonce(manager: Manager, idp: Provider) -> None:
    begun = begin(manager, "?next=%2Fcluster")
    assert {"state", "nonce", "code_challenge"} <= begun.asked.keys()
    assert begun.asked["code_challenge_method"] == "S256"

    answer = finish(manager, begun.callback, begun.cookie)

    assert answer.status == 200
    assert 'content="0;url=/cluster"' in answer.text
    page = ask(manager.client.url, "GET", "/cluster", Cookie=f"rota_session={answer.cookie('rota_session')}")
    assert page.status == 200
    assert "ada" in page.text
    entry = manager.client.get("/audit?what=login&limit=1")[0]
    assert (entry["who"], entry["detail"]) == ("ada", "ada member; single sign-on, from 127.0.0.1")


def test_refresh_follows_the_claims_and_ends_with_the_provider(manager: Manager, idp: Provider) -> None:
    idp.control(expires_in=1)
    client = Client(manager.client.url, by_device(manager, idp)["token"])
    assert client.get("/whoami")["role"] == "member"

    idp.control(claims={**ADA, "groups": ["admins"]})
    eventually(lambda: client.get("/whoami")["role"] == "admin", within_s=60)
    idp.control(forget_refresh_tokens=True)

    def is_over() -> bool:
        try:
            client.get("/whoami")
        except Refused as refused:
            return refused.status == 401
        return False

    eventually(is_over, within_s=60)


# -- forged ID tokens -----------------------------------------------------------------------------

SIGNED = "the ID token's signature is checked with the provider's public keys"
FORGERIES = {
    "nonce": ("replays an ID token of another login (nonce)", "the nonce is compared"),
    "no-nonce": ("leaves the nonce out", "the nonce is compared"),
    "none": ("signs an ID token with alg none", SIGNED),
    "hs256-public-key": ("signs an ID token with HS256 and the public key", SIGNED),
    "hs256-shared-key": ("signs an ID token with a symmetric key of the key set", SIGNED),
    "other-key": ("signs an ID token with another key of the same id", SIGNED),
    "own-key": ("brings its own key in the header", SIGNED),
    "payload": ("changes the claims of a signed ID token", SIGNED),
    "audience": ("uses an ID token for another client", "the audience is compared"),
    "audiences": ("uses an ID token that another client asked for (azp)", "the authorized party is compared"),
    "issuer": ("uses an ID token of another issuer", "the issuer is compared"),
    "expired": ("uses an expired ID token", "the expiry is checked"),
    "future": ("uses an ID token of the future", "the times are checked"),
    "at_hash": ("swaps the access token beside an ID token", "the hash of the access token is compared"),
}


@pytest.mark.parametrize(
    "how",
    [pytest.param(how, marks=attack(what, stopped_by=by), id=how) for how, (what, by) in FORGERIES.items()],
)
def test_forged_id_token_is_refused(manager: Manager, idp: Provider, how: str) -> None:
    idp.control(forge=how)
    begun = begin(manager)

    answer = finish(manager, begun.callback, begun.cookie)

    assert answer.status == 401, answer.text
    assert "ID token can" in answer.text
    assert not is_logged_in(manager, answer)


# -- the way back ---------------------------------------------------------------------------------


@attack("logs a victim in as itself with its own code (login CSRF)", stopped_by="the state belongs to one browser")
def test_callback_of_another_browser_is_refused(manager: Manager, idp: Provider) -> None:
    begun, other = begin(manager), begin(manager)

    for cookie in ("", other.cookie):
        answer = finish(manager, begin(manager).callback, cookie)
        assert answer.status == 401
        assert not is_logged_in(manager, answer)
    assert is_logged_in(manager, finish(manager, begun.callback, begun.cookie))


@attack("makes up a state", stopped_by="states are random and known to the manager")
def test_made_up_state_is_refused(manager: Manager, idp: Provider) -> None:
    begun = begin(manager)
    for state in ("", "guess", begun.answer()["state"][:-1], begun.answer()["state"] * 100):
        query = urlencode({**begun.answer(), "state": state})
        assert finish(manager, f"/login/callback?{query}", begun.cookie).status == 401
    assert is_logged_in(manager, finish(manager, begun.callback, begun.cookie))


@attack("replays a code that was used", stopped_by="each state is used once")
def test_used_code_is_refused(manager: Manager, idp: Provider) -> None:
    begun = begin(manager)
    assert is_logged_in(manager, finish(manager, begun.callback, begun.cookie))

    again = finish(manager, begun.callback, begun.cookie)

    assert again.status == 401
    assert not is_logged_in(manager, again)


@attack("injects a stolen code into its own login", stopped_by="PKCE: the code belongs to one login")
def test_stolen_code_is_refused(manager: Manager, idp: Provider) -> None:
    victim, attacker = begin(manager), begin(manager)
    query = urlencode({**attacker.answer(), "code": victim.answer()["code"]})

    answer = finish(manager, f"/login/callback?{query}", attacker.cookie)

    assert answer.status == 401
    assert not is_logged_in(manager, answer)


@attack("answers for another provider (mix-up)", stopped_by="the issuer of the answer is compared")
def test_answer_of_another_issuer_is_refused(manager: Manager, idp: Provider) -> None:
    begun = begin(manager)
    query = urlencode({**begun.answer(), "iss": "https://evil.example"})

    assert finish(manager, f"/login/callback?{query}", begun.cookie).status == 401


@attack(
    "puts a script into the provider's error", stopped_by="errors are escaped, and the page allows no foreign script"
)
def test_error_of_the_provider_is_shown_as_text(manager: Manager, idp: Provider) -> None:
    begun = begin(manager)
    query = urlencode(
        {"state": begun.answer()["state"], "error": "x", "error_description": "<script>alert(1)</script>"}
    )

    answer = finish(manager, f"/login/callback?{query}", begun.cookie)

    assert answer.status == 401
    assert "<script>" not in answer.text
    assert "&lt;script&gt;" in answer.text


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(target, marks=attack("sends a user elsewhere after the login", stopped_by="only own pages follow"))
        for target in (
            "https://evil.example",
            "//evil.example",
            "/\\evil.example",
            "/%09/evil.example",
            "javascript:alert(1)",
            "/login/oidc",
            "\r\nSet-Cookie: x=y",
        )
    ],
)
def test_login_leads_to_own_pages_only(manager: Manager, idp: Provider, target: str) -> None:
    begun = begin(manager, f"?{urlencode({'next': target})}")
    answer = finish(manager, begun.callback, begun.cookie)

    assert answer.status == 200
    assert "evil.example" not in answer.text or "url=/%09/evil.example" in answer.text
    assert "javascript" not in answer.text
    assert answer.headers.get("location") is None
    by_token = post_form(manager.client.url, f"/login?{urlencode({'next': target})}", token=manager.token)
    assert urlsplit(by_token.headers["location"]).netloc == ""
    assert by_token.headers["location"].startswith("/")


@attack("keeps a session id from before the login", stopped_by="each login gets a new session id")
def test_login_gives_a_new_session(manager: Manager, idp: Provider) -> None:
    first = logged_in(manager)
    begun = begin(manager)

    answer = finish(manager, begun.callback, f"{begun.cookie}; {first}")

    assert f"rota_session={answer.cookie('rota_session')}" != first
    assert ask(manager.client.url, "GET", "/jobs", Cookie=first).status == 303, "the old one is closed"


@attack("reads the cookies of a login by script or over plain HTTP", stopped_by="flags of the cookies")
def test_flags_of_the_cookies_over_tls(idp: Provider, tmp_path: Path) -> None:
    made = manager_for(tmp_path, idp.issuer, options=("--url", "https://rota.example.org"))
    try:
        away = ask(made.client.url, "GET", "/login/oidc")
        assert "redirect_uri=https%3A%2F%2Frota.example.org%2Flogin%2Fcallback" in away.headers["location"]
        flags = {part.strip().lower() for part in away.cookies[0].split(";")[1:]}
        assert {"httponly", "secure", "samesite=lax", "path=/login"} <= flags
        answer = post_form(made.client.url, "/login", {"Host": "evil.example"}, token=made.token)
        name, _, rest = answer.cookies[0].partition("=")
        flags = {part.strip().lower() for part in rest.split(";")[1:]}
        assert name == "__Host-rota_session"
        assert {"httponly", "secure", "samesite=strict", "path=/"} <= flags
    finally:
        made.clean_up()


# -- claims ---------------------------------------------------------------------------------------

CLAIMS: dict[str, tuple[dict[str, Any], str, str]] = {
    "no group": ({**ADA, "groups": []}, "has no role", "claims that are not mapped give nothing"),
    "another group": ({**ADA, "groups": ["visitors"]}, "has no role", "claims that are not mapped give nothing"),
    "a group that looks alike": ({**ADA, "groups": ["Admins", "admins ", "admin"]}, "has no role", "values are exact"),
    "groups as an object": ({**ADA, "groups": {"admins": True}}, "has no role", "only texts and lists of texts count"),
    "no name": ({"sub": "u-1", "groups": ["lab"]}, "not a user name", "a name is required"),
    "the manager's own name": ({**ADA, "preferred_username": "local"}, "not a user name", "reserved names are refused"),
    "a name with an escape": ({**ADA, "preferred_username": "\x1b[2Jada"}, "not a user name", "names are checked"),
    "another user's name": (
        {**ADA, "sub": "u-666"},
        "belongs to another account",
        "names are bound to their first account",
    ),
}


@pytest.mark.parametrize(
    ("claims", "refusal"),
    [
        pytest.param(claims, refusal, marks=attack(f"logs in with {what}", stopped_by=by), id=what)
        for what, (claims, refusal, by) in CLAIMS.items()
    ],
)
def test_claims_without_rights_are_refused(
    manager: Manager, idp: Provider, claims: dict[str, Any], refusal: str
) -> None:
    logged_in(manager)  # as ada, the owner of the name from then on
    idp.control(claims=claims)
    begun = begin(manager)

    answer = finish(manager, begun.callback, begun.cookie)

    assert answer.status == 403, answer.text
    assert refusal in answer.text
    assert "\x1b" not in answer.text
    assert not is_logged_in(manager, answer)


@attack("takes the name of a token or of a local user by single sign-on", stopped_by="only free names can be taken")
@pytest.mark.parametrize("kind", ["token", "user"])
def test_name_of_a_token_or_a_local_user_is_refused(manager: Manager, idp: Provider, kind: str) -> None:
    name, path = f"taken-by-{kind}", manager.home / "users.json"
    if kind == "token":
        made = manager.client.post("/tokens", {"name": name, "role": "member", "tenants": ["vision"]})
    else:
        with changed_users(path) as found:
            found[name] = LocalUser(name=name, role="member", tenants=("vision",), password=hash_password("x" * 12))
    idp.control(claims={**ADA, "sub": f"u-{kind}", "preferred_username": name})
    begun = begin(manager)

    answer = finish(manager, begun.callback, begun.cookie)

    assert answer.status == 403
    assert "belongs to another account" in answer.text
    if kind == "token":
        manager.client.delete(f"/tokens/{made['id']}")
    else:
        with changed_users(path) as found:
            del found[name]
    begun = begin(manager)
    assert finish(manager, begun.callback, begun.cookie).status == 200, "the name is free once the token is revoked"


# -- the end --------------------------------------------------------------------------------------


@attack("keeps a stream after an admin ended the session", stopped_by="streams end with their session")
def test_ended_session_ends_its_streams(manager: Manager, idp: Provider) -> None:
    opened = by_device(manager, idp)
    stream = TimedStream(manager.client.url, "/events", opened["token"])
    eventually(lambda: stream.content)

    manager.client.delete(f"/tokens/{opened['id']}")

    assert stream.ends_within(1.0)


@attack("uses the command line's session after `rota logout`", stopped_by="logout ends the session on the manager")
def test_logout_ends_the_session_everywhere(manager: Manager, idp: Provider) -> None:
    client = Client(manager.client.url, by_device(manager, idp)["token"])
    client.post("/logout")

    with pytest.raises(Refused) as refused:
        client.nodes()
    assert refused.value.status == 401
