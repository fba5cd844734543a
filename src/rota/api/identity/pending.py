"""Logins that were begun and are not finished; each is used once, and their number is bounded."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rota.api.access import digest_of

PENDING_S = 600.0
MAX_PENDING = 10_000
MIN_INTERVAL_S = 1.0
SLOWER_S = 5.0


@dataclass(frozen=True, slots=True)
class PendingBrowser:
    """A login in a browser: the digest of the browser's secret, the nonce, PKCE's verifier and the page asked for."""

    browser: str
    nonce: str
    verifier: str
    target: str
    until_s: float = field(default_factory=lambda: time.monotonic() + PENDING_S)


@dataclass(slots=True)
class DeviceLogin:
    """A login on another device."""

    device_code: str
    interval_s: float
    expires_in_s: float
    until_s: float
    next_s: float = 0.0

    @classmethod
    def from_answer(cls, answer: Mapping[str, Any]) -> DeviceLogin:
        """Return the login that a provider's answer describes."""
        lasts_s = _number(answer.get("expires_in"), PENDING_S)
        return cls(
            device_code=str(answer["device_code"]),
            interval_s=max(_number(answer.get("interval"), SLOWER_S), MIN_INTERVAL_S),
            expires_in_s=lasts_s,
            until_s=time.monotonic() + min(lasts_s, 3600.0),
        )

    def may_poll(self) -> bool:
        """Whether the provider may be asked again; counts as asked."""
        now_s = time.monotonic()
        if now_s < self.next_s:
            return False
        self.next_s = now_s + self.interval_s
        return True

    def goes_on(self, error: str) -> bool:
        """Whether an error of the provider means to wait on."""
        if error == "slow_down":
            self.interval_s += SLOWER_S
        return error in ("slow_down", "authorization_pending")


def _number(value: object, default: float) -> float:
    return float(value) if isinstance(value, int | float) and 0 < value < 1e6 else default


class PendingLogins:
    """Logins by their state or handle, of which only digests are kept."""

    def __init__(self) -> None:
        self._browsers: dict[str, PendingBrowser] = {}
        self._devices: dict[str, DeviceLogin] = {}

    def add_browser(self, state: str, login: PendingBrowser) -> None:
        """Keep a login until the provider sends the browser back."""
        _make_room(self._browsers)
        self._browsers[digest_of(state)] = login

    def take_browser(self, state: str) -> PendingBrowser | None:
        """Return the login of a state once; None if there is none or it took too long."""
        found = self._browsers.pop(digest_of(state), None)
        return found if found is not None and found.until_s > time.monotonic() else None

    def add_device(self, login: DeviceLogin) -> str:
        """Keep a login; return the handle to poll with."""
        _make_room(self._devices)
        handle = secrets.token_urlsafe(32)
        self._devices[digest_of(handle)] = login
        return handle

    def device(self, handle: str) -> DeviceLogin | None:
        """Return the login of a handle; None if there is none or it took too long."""
        found = self._devices.get(digest_of(handle))
        return found if found is not None and found.until_s > time.monotonic() else None

    def drop_device(self, handle: str) -> None:
        """Forget a login."""
        self._devices.pop(digest_of(handle), None)


def _make_room(logins: dict[str, Any]) -> None:
    """Drop the oldest logins that took too long, and further ones while there are too many."""
    now_s = time.monotonic()
    while logins:
        oldest = next(iter(logins))
        if logins[oldest].until_s > now_s and len(logins) < MAX_PENDING:
            return
        del logins[oldest]
