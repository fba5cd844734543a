"""Logins of the command line by the device flow: what works, and what a stranger tries."""

from __future__ import annotations

import json
import time

import pytest

from attacks.logins import by_device
from attacks.single_sign_on import Provider
from managers import Manager
from rota.sdk.client import Client, Refused

attack = pytest.mark.attack
pytestmark = pytest.mark.slow


def test_device_flow_gives_the_command_line_a_session(manager: Manager, idp: Provider) -> None:
    opened = by_device(manager, idp)

    assert (opened["name"], opened["role"], opened["tenants"]) == ("ada", "member", ["vision"])
    assert Client(manager.client.url, opened["token"]).get("/whoami")["name"] == "ada"


def test_rota_login_shows_the_code_and_keeps_the_session(manager: Manager, idp: Provider) -> None:
    idp.control(device="approved")

    told = manager.rota("login", "--server", manager.client.url)

    assert told.returncode == 0, told.stderr
    assert "enter the code " in told.stdout
    assert told.stdout.endswith(f"logged in to {manager.client.url} as ada (member; tenants: vision)\n")
    kept = manager.folder / "state" / "rota" / "credentials.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert "ada" in manager.rota("whoami").stdout
    session = json.loads(kept.read_text())[manager.client.url]
    assert manager.rota("logout").returncode == 0
    with pytest.raises(Refused):
        Client(manager.client.url, session).nodes()
    assert "revoked" in idp.control()["seen"], "the provider is told, too"


@attack("polls a device login that is not its own", stopped_by="the handle is random, and only its digest is kept")
def test_made_up_device_handle_is_refused(manager: Manager, idp: Provider) -> None:
    begun = Client(manager.client.url, "none").post("/login/device")
    assert "device_code" not in begun, "the provider's code stays with the manager"
    for handle in ("guess", begun["user_code"], begun["handle"][:-1]):
        with pytest.raises(Refused) as refused:
            Client(manager.client.url, "none").post("/login/device/poll", {"handle": handle})
        assert refused.value.status == 401


@attack("uses a device login twice", stopped_by="each device login is used once")
def test_device_login_is_used_once(manager: Manager, idp: Provider) -> None:
    client = Client(manager.client.url, "none")
    begun = client.post("/login/device")
    idp.control(device="approved")
    assert "token" in client.post("/login/device/poll", {"handle": begun["handle"]})

    with pytest.raises(Refused, match="unknown or took too long"):
        client.post("/login/device/poll", {"handle": begun["handle"]})


@attack("goes on after the user denied a device login", stopped_by="the provider's refusal ends the login")
def test_denied_device_login_ends(manager: Manager, idp: Provider) -> None:
    client = Client(manager.client.url, "none")
    begun = client.post("/login/device")
    idp.control(device="denied")

    with pytest.raises(Refused, match="the provider refused"):
        client.post("/login/device/poll", {"handle": begun["handle"]})
    idp.control(device="approved")
    with pytest.raises(Refused, match="unknown or took too long"):
        client.post("/login/device/poll", {"handle": begun["handle"]})


@attack("makes the manager hammer the provider", stopped_by="the manager keeps the provider's interval")
def test_provider_is_asked_no_faster_than_it_allows(manager: Manager, idp: Provider) -> None:
    client = Client(manager.client.url, "none")
    begun = client.post("/login/device")
    begun_s = time.monotonic()
    client.post("/login/device/poll", {"handle": begun["handle"]})
    idp.control(device="approved")
    for _ in range(20):
        answer = client.post("/login/device/poll", {"handle": begun["handle"]})
        if time.monotonic() - begun_s >= begun["interval_s"]:
            break  # the manager may have asked again
        assert answer == {"state": "pending"}
