"""Settings of single sign-on that can't be used, and a provider that others wrote."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from attacks.session_calls import ask, post_form
from attacks.single_sign_on import finish, manager_for, running
from rota.cli.main import status

attack = pytest.mark.attack
pytestmark = pytest.mark.slow


def test_provider_from_pypi_logs_users_in(tmp_path: Path) -> None:
    """The whole login against oidc-provider-mock, an independent provider (it has no device flow)."""
    program = (
        "import os, sys, threading; os.environ['AUTHLIB_INSECURE_TRANSPORT'] = '1'\n"
        "import oidc_provider_mock\n"
        "with oidc_provider_mock.run_server_in_thread() as server:\n"
        "    print(server.server_port, flush=True); threading.Event().wait()\n"
    )
    with running([sys.executable, "-c", program]) as address:
        issuer = address.replace("127.0.0.1", "localhost")
        claims = {"preferred_username": "grace", "groups": ["admins"]}
        assert (
            ask(issuer, "PUT", "/users/u-7", json.dumps(claims).encode(), Content_Type="application/json").status == 204
        )
        manager = manager_for(tmp_path, issuer)
        try:
            away = ask(manager.client.url, "GET", "/login/oidc")
            place = urlsplit(away.headers["location"])
            confirmed = post_form(issuer, f"{place.path}?{place.query}", sub="u-7")
            assert confirmed.status == 302, confirmed.text
            cookie = f"rota_login={away.cookie('rota_login')}"
            answer = finish(manager, confirmed.headers["location"], cookie)
            assert answer.status == 200, answer.text
            page = ask(manager.client.url, "GET", "/audit-log", Cookie=f"rota_session={answer.cookie('rota_session')}")
            assert "Only admins" not in page.text
            entry = manager.client.get("/audit?what=login&limit=1")[0]
            assert (entry["who"], entry["detail"].split(";")[0]) == ("grace", "grace admin")

            replayed = finish(manager, confirmed.headers["location"], cookie)
            assert replayed.status == 401
        finally:
            manager.clean_up()


def refusal_of_up(folder: Path, file: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line with which `rota up` refuses settings."""
    code = status(["up", "--port", "0", "--emulate", "gpu=1/1", "--data", str(folder / "data"), "--oidc", str(file)])
    told = capsys.readouterr().err
    assert (code, told.count("\n")) == (2, 1)
    return told


# -- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "told"),
    [
        pytest.param(
            {"issuer": "http://idp.example.org"},
            "is not an https:// URL",
            marks=attack("listens to the provider's answers", stopped_by="providers need https"),
        ),
        ({"roles": {"god": ["x"]}}, "roles.god"),
        ({"client_secret_file": "nowhere"}, "can't be read"),
        ({"issuer": "https://idp.example.org", "colour": 1}, "unknown field colour"),
    ],
)
def test_bad_settings_are_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], values: dict[str, Any], told: str
) -> None:
    file = tmp_path / "oidc.json"
    usual = {"issuer": "https://idp.example.org", "client_id": "rota", "roles": {"member": ["*"]}}
    file.write_text(json.dumps({**usual, **values}))
    assert refusal_of_up(tmp_path, file, capsys).count(told) == 1


@attack("reads the client's secret as another user", stopped_by="a secret that others can read is refused")
def test_secret_that_others_can_read_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "secret").chmod(0o644)
    file = tmp_path / "oidc.json"
    values = {"issuer": "https://idp.example.org", "client_id": "rota", "roles": {"member": ["*"]}}
    file.write_text(json.dumps({**values, "client_secret_file": "secret"}))
    assert "can be read by other users" in refusal_of_up(tmp_path, file, capsys)
