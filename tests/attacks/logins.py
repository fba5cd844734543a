"""Logins by single sign-on, as a browser and as the command line do them."""

from __future__ import annotations

from typing import Any

from attacks.single_sign_on import Provider, begin, finish
from managers import Manager, eventually
from rota.sdk.client import Client


def logged_in(manager: Manager) -> str:
    """Log in as a browser does; return the Cookie header."""
    begun = begin(manager)
    answer = finish(manager, begun.callback, begun.cookie)
    assert answer.status == 200, answer.text
    return f"rota_session={answer.cookie('rota_session')}"


def by_device(manager: Manager, idp: Provider) -> dict[str, Any]:
    """Log in as the command line does; return the session."""
    anonymous = Client(manager.client.url, "none")
    begun = anonymous.post("/login/device")
    assert anonymous.post("/login/device/poll", {"handle": begun["handle"]}) == {"state": "pending"}
    idp.control(device="approved")

    def polled() -> dict[str, Any]:
        found: dict[str, Any] = anonymous.post("/login/device/poll", {"handle": begun["handle"]})
        return found if "token" in found else {}

    return eventually(polled, within_s=60, every_s=0.2)
