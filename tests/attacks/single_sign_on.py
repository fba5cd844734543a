"""A manager with single sign-on, its provider as a process of its own, and the steps of a browser's login."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from attacks.session_calls import HttpAnswer, ask
from managers import Manager

SERVER = Path(__file__).with_name("oidc_server.py")
SETTINGS = {
    "client_id": "rota-tests",
    "client_secret_file": "secret",
    "scopes": ["openid", "profile"],
    "roles": {"admin": ["admins"], "member": ["lab"]},
    "tenants": {"vision": ["lab"], "*": ["admins"]},
}
ADA = {"sub": "u-1", "preferred_username": "ada", "groups": ["lab"]}


@dataclass(frozen=True, slots=True)
class Provider:
    """A running provider."""

    issuer: str

    def control(self, **values: Any) -> dict[str, Any]:
        """Change how the provider behaves."""
        answer = ask(self.issuer, "PUT", "/control", json.dumps(values).encode(), Content_Type="application/json")
        found: dict[str, Any] = json.loads(answer.text)
        return found

    def reset(self) -> None:
        """Let the provider behave, and know one user."""
        self.control(claims=ADA, forge=None, expires_in=3600, device="pending", refresh=True, seen=[])


@contextmanager
def running(command: list[str]) -> Iterator[str]:
    """Run a provider that prints its port; return its address."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port.isdigit(), "the provider did not start"
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.communicate()


@contextmanager
def provider() -> Iterator[Provider]:
    """Run the provider that is made of Authlib's server part."""
    with running([sys.executable, str(SERVER)]) as issuer:
        yield Provider(issuer)


def manager_for(folder: Path, issuer: str, options: tuple[str, ...] = ()) -> Manager:
    """Start a manager whose users log in with a provider."""
    secret = folder / "secret"
    secret.write_text("a secret of the client\n")
    secret.chmod(0o600)
    file = folder / "oidc.json"
    file.write_text(json.dumps({**SETTINGS, "issuer": issuer}))
    return Manager(folder, "--emulate", "gpu=1/1", "--require-token", "--oidc", str(file), *options).start_guarded()


@dataclass(frozen=True, slots=True)
class BegunLogin:
    """A login that is at the provider: the browser's cookie, and where the provider sends it back to."""

    cookie: str
    asked: dict[str, str]
    callback: str

    def answer(self) -> dict[str, str]:
        """Return the provider's answer."""
        return {name: values[0] for name, values in parse_qs(urlsplit(self.callback).query).items()}


def begin(manager: Manager, target: str = "") -> BegunLogin:
    """Begin a login, and let the provider confirm it."""
    away = ask(manager.client.url, "GET", f"/login/oidc{target}")
    assert away.status == 303, away.text
    place = urlsplit(away.headers["location"])
    asked = {name: values[0] for name, values in parse_qs(place.query).items()}
    back = ask(f"{place.scheme}://{place.netloc}", "GET", f"{place.path}?{place.query}")
    assert back.status == 302, back.text
    return BegunLogin(f"rota_login={away.cookie('rota_login')}", asked, back.headers["location"])


def finish(manager: Manager, callback: str, cookie: str = "") -> HttpAnswer:
    """Come back from the provider."""
    place = urlsplit(callback)
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    if cookie:
        headers["Cookie"] = cookie
    return ask(manager.client.url, "GET", f"{place.path}?{place.query}", None, **headers)


def is_logged_in(manager: Manager, answer: HttpAnswer) -> bool:
    """Whether an answer opened a session."""
    return any(cookie.startswith("rota_session=") for cookie in answer.cookies)
