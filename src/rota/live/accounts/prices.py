"""Prices of device time and energy: each holds from an hour on, so that what was used before keeps its cost."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rota.live.intake.audit_entry import Asker, audit_entry
from rota.live.loop.control import Control
from rota.live.loop.entry import LoopEntry
from rota.live.loop.record import dump
from rota.store import clock
from rota.store.accounts.usage import HOUR_S
from rota.store.records import Records

KEY = "prices"
"""Under which name the records keep the prices."""
ANY = "*"
"""Stands for all device types without a price of their own."""
J_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """What an hour of each device type costs, from an hour on."""

    since_s: int = 0
    per_gpu_hour: Mapping[str, float] = field(default_factory=dict)
    per_kwh: float = 0.0

    def cost(self, device_type: str, device_s: float, energy_j: float) -> float:
        """Return what device time and energy cost."""
        price = self.per_gpu_hour.get(device_type, self.per_gpu_hour.get(ANY, 0.0))
        return device_s / HOUR_S * price + energy_j / J_PER_KWH * self.per_kwh


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """All price lists so far, oldest first."""

    currency: str = ""
    lists: tuple[PriceList, ...] = ()

    def at(self, hour_s: float) -> PriceList | None:
        """Return the list that held in an hour; None where there was none."""
        found = bisect_right(self.lists, hour_s, key=lambda each: each.since_s)
        return self.lists[found - 1] if found else None

    def cost(self, hour_s: float, device_type: str, device_s: float, energy_j: float = 0.0) -> float:
        """Return what was used in an hour costs; nothing where there was no price."""
        held = self.at(hour_s)
        return 0.0 if held is None else held.cost(device_type, device_s, energy_j)


def prices_of(records: Records) -> Prices:
    """Return the stored prices."""
    stored = records.setting(KEY)
    if stored is None:
        return Prices()
    return Prices(currency=stored["currency"], lists=tuple(PriceList(**each) for each in stored["lists"]))


async def set_prices(
    control: Control, known: Prices, per_gpu_hour: Mapping[str, float], per_kwh: float, currency: str, asker: Asker
) -> Prices:
    """Let other prices hold from the present hour on."""
    since_s = int(clock.shown_s(clock.now_s()) // HOUR_S) * HOUR_S
    kept = tuple(each for each in known.lists if each.since_s < since_s)
    new = PriceList(since_s=since_s, per_gpu_hour=dict(sorted(per_gpu_hour.items())), per_kwh=per_kwh)
    after = Prices(currency=currency, lists=(*kept, new))
    words = ", ".join(f"{kind} {price:g}" for kind, price in new.per_gpu_hour.items()) or "none"
    detail = f"per GPU hour: {words}; per kWh: {per_kwh:g}; {currency or 'no currency'}"
    stored: dict[str, Any] = {
        "currency": currency,
        "lists": [
            {"since_s": each.since_s, "per_gpu_hour": dict(each.per_gpu_hour), "per_kwh": each.per_kwh}
            for each in after.lists
        ],
    }
    await control.apply(
        LoopEntry([], settings={KEY: dump(stored)}, audit=[audit_entry(asker, "prices", "prices", detail[:500])])
    )
    return after
