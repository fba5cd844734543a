"""Recent usage by account: device-seconds that decay by half in every half-life."""

from __future__ import annotations

import math

Past = dict[str, list[float]]
"""By account: device-seconds, faded, and the moment as of which they are; plain values, kept with the state."""


class DecayedUsage:
    """Use over time of some accounts. Only what an account holds and the passing of time change it."""

    __slots__ = ("_held", "_past", "half_life_s")

    def __init__(self, half_life_s: float, past: Past) -> None:
        self.half_life_s = half_life_s
        self._past = past
        self._held: dict[str, float] = {}

    def change(self, account: str, devices: float, now_s: float) -> None:
        """An account holds so many devices more from now on, or less."""
        self.of(account, now_s)
        self._held[account] = self._held.get(account, 0.0) + devices

    def resume(self, account: str, devices: float, now_s: float) -> None:
        """An account has held so many devices ever since it was last changed: found again after a restart."""
        self._past.setdefault(account, [0.0, now_s])
        self._held[account] = self._held.get(account, 0.0) + devices

    def held(self, account: str) -> float:
        """Devices that an account holds now."""
        return self._held.get(account, 0.0)

    def of(self, account: str, now_s: float) -> float:
        """Device-seconds that an account has used, those of one half-life ago counted half."""
        entry = self._past.setdefault(account, [0.0, now_s])
        passed_s = now_s - entry[1]
        if passed_s > 0:
            fade = 0.5 ** (passed_s / self.half_life_s)
            # The integral of a constant use under the same fading.
            fresh = self.held(account) * self.half_life_s / math.log(2) * (1 - fade)
            entry[0] = entry[0] * fade + fresh
            entry[1] = now_s
        return entry[0]
