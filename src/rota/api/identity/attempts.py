"""Limits on failed logins: by address, by user, and by both."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable

from rota.core.errors import RotaError

WINDOW_S = 300.0
MAX_BY_BOTH = 5
MAX_BY_SOURCE = 20
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

    def refuse_if_many(self, source: str, name: str = "") -> None:
        """Raise `TooManyLogins` if one of the counters has reached its limit; without a name, by address only."""
        now_s = self._clock()
        for key, most in _keys(source, name):
            count, until_s = self._failures.get(key, (0, 0.0))
            if count >= most and until_s > now_s:
                raise TooManyLogins(until_s - now_s)

    def failed(self, source: str, name: str = "") -> None:
        """Count a failed login; without a name, by address only."""
        now_s = self._clock()
        for key, _ in _keys(source, name):
            count, until_s = self._failures.pop(key, (0, 0.0))
            self._failures[key] = (count + 1, until_s) if until_s > now_s else (1, now_s + WINDOW_S)
        while len(self._failures) > MAX_KEPT:
            del self._failures[next(iter(self._failures))]

    def succeeded(self, source: str, name: str) -> None:
        """Forget the failures of a user at this address."""
        self._failures.pop(_keys(source, name)[0][0], None)


def _keys(source: str, name: str) -> tuple[tuple[Key, int], ...]:
    network = _network(source)
    if not name:
        return (((network, ""), MAX_BY_SOURCE),)
    return ((network, name), MAX_BY_BOTH), ((network, ""), MAX_BY_SOURCE), (("", name), MAX_BY_NAME)


def _network(source: str) -> str:
    """Return an IPv4 address, or the /64 network of an IPv6 address: one host has all addresses of its network."""
    try:
        address = ipaddress.ip_address(source)
    except ValueError:
        return source or "-"
    return source if address.version == 4 else str(ipaddress.ip_network((source.partition("%")[0], 64), strict=False))
