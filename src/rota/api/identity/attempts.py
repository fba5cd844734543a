"""Limits on failed logins. A valid credential is never refused for failures of others.

Only tries of one user's password are refused: after failures in that user's name, from a device where the user has not
logged in before. Many failures from one address, behind which there may be many users, slow down what comes from it.
Tokens have 256 random bits: a valid one is always taken.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import time
from collections.abc import Callable

from rota.core.errors import RotaError

WINDOW_S = 300.0
MAX_BY_BOTH = 5
MAX_BY_SOURCE = 20
"""Above this many failures from an address, what comes from it waits, and further failures are answered with 429."""
PAUSE_S = 1.0
MAX_BY_NAME = 50
"""Above this many failures from any address, a user's password is not tried for the rest of the window."""
MAX_KEPT = 10_000

Key = tuple[str, str]


class TooManyLogins(RotaError):
    """A login is refused without a look at the password, since too many have failed; `retry_s` says until when."""

    def __init__(self, retry_s: float) -> None:
        self.retry_s = max(1, round(retry_s))
        super().__init__(f"too many failed logins; try again in {self.retry_s} s")


class LoginLimiter:
    """Counts failed logins in windows of five minutes; the number of counters is bounded."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[Key, tuple[int, float]] = {}

    def refuse_if_many(self, source: str, name: str, device: str = "") -> None:
        """Raise `TooManyLogins` if too many tries of a user have failed; a known device is counted by itself."""
        for key, most in _keys(source, name, device):
            self._refuse(key, most)

    def refuse_failed(self, source: str) -> None:
        """Raise `TooManyLogins` for a login that has failed, if many from its address have."""
        self._refuse((network_of(source), ""), MAX_BY_SOURCE)

    def pause_s(self, source: str) -> float:
        """Return how long a login from an address waits: not at all, unless many from it have failed."""
        count, until_s = self._failures.get((network_of(source), ""), (0, 0.0))
        return PAUSE_S if count >= MAX_BY_SOURCE and until_s > self._clock() else 0.0

    def failed(self, source: str, name: str = "", device: str = "") -> None:
        """Count a failed login; without a name, by address only."""
        now_s = self._clock()
        keys = [key for key, _ in _keys(source, name, device)] if name else []
        for key in keys if device else [*keys, (network_of(source), "")]:
            count, until_s = self._failures.pop(key, (0, 0.0))
            self._failures[key] = (count + 1, until_s) if until_s > now_s else (1, now_s + WINDOW_S)
        while len(self._failures) > MAX_KEPT:
            del self._failures[next(iter(self._failures))]

    def succeeded(self, source: str, name: str, device: str = "") -> None:
        """Forget the failures of a user at this address, or with this device."""
        self._failures.pop(_keys(source, name, device)[0][0], None)

    def _refuse(self, key: Key, most: int) -> None:
        count, until_s = self._failures.get(key, (0, 0.0))
        now_s = self._clock()
        if count >= most and until_s > now_s:
            raise TooManyLogins(until_s - now_s)


class DeviceMarks:
    """Marks that a browser or command line gets when a user logs in with it, and shows at the user's next login.

    They hold while the manager runs and the user's password stays the same. A mark is no credential: with it,
    failures of others do not count.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def make(self, name: str, hashed: str) -> str:
        """Return the mark of a new device of a user, whose password is `hashed`."""
        device = secrets.token_hex(8)
        return f"{device}.{self._signature(device, name, hashed)}"

    def device(self, mark: str, name: str, hashed: str) -> str:
        """Return the device of a mark; empty if it is no mark of this user."""
        device, _, signature = mark.partition(".")
        expected = self._signature(device, name, hashed)
        return device if hmac.compare_digest(signature.encode(), expected.encode()) else ""

    def _signature(self, device: str, name: str, hashed: str) -> str:
        return hmac.new(self._key, "\0".join((device, name, hashed)).encode(), hashlib.sha256).hexdigest()


def _keys(source: str, name: str, device: str) -> tuple[tuple[Key, int], ...]:
    if device:
        return (((f"device {device}", name), MAX_BY_BOTH),)
    return ((network_of(source), name), MAX_BY_BOTH), (("", name), MAX_BY_NAME)


def network_of(source: str) -> str:
    """Return an IPv4 address, or the /64 network of an IPv6 address: one host has all addresses of its network."""
    try:
        address = ipaddress.ip_address(source)
    except ValueError:
        return source or "-"
    return source if address.version == 4 else str(ipaddress.ip_network((source.partition("%")[0], 64), strict=False))
