"""Calls of a manager's API about accounts and alerts: usage, prices, budgets, the fair-share standing, alerts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

Json = dict[str, Any]


class AccountCalls(ABC):
    """What a client can do with accounts."""

    @abstractmethod
    def _call(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Any: ...

    def usage(self, by: str = "tenant,user", **only: str | None) -> Json:
        """Return GPU hours, cost and energy: `since`, `until`, `tenant`, `user` and `project` narrow it down."""
        query = urlencode({name: value for name, value in {"by": by, **only}.items() if value is not None})
        answer: Json = self._call("GET", f"/usage?{query}")
        return answer

    def prices(self) -> Json:
        """Return the prices of device time and energy."""
        answer: Json = self._call("GET", "/prices")
        return answer

    def set_prices(self, per_gpu_hour: Mapping[str, float], *, per_kwh: float = 0.0, currency: str = "") -> Json:
        """Set the prices by device type (`*` for all others) from the present hour on."""
        body = {"per_gpu_hour": dict(per_gpu_hour), "per_kwh": per_kwh, "currency": currency}
        answer: Json = self._call("PUT", "/prices", body)
        return answer

    def budgets(self) -> list[Json]:
        """Return the budgets of the caller's tenants, and what is used of them."""
        answer: list[Json] = self._call("GET", "/budgets")
        return answer

    def put_budget(self, name: str, budget: Json) -> Json:
        """Add or change a budget: `tenant`, `user`, `project`, `gpu_hours` or `cost`, `period`, `warn`, `at_limit`."""
        answer: Json = self._call("PUT", f"/budgets/{quote(name, safe='')}", budget)
        return answer

    def remove_budget(self, name: str) -> None:
        """Remove a budget; jobs that only it held are released."""
        self._call("DELETE", f"/budgets/{quote(name, safe='')}")

    def reservations(self) -> list[Json]:
        """Return the reservations that are not over, the next one first; for admins."""
        answer: list[Json] = self._call("GET", "/reservations")
        return answer

    def reserve(self, name: str, reservation: Json) -> Json:
        """Make a reservation: `for_s`, `from`, `nodes` or `gpus` and `type`, `tenant` or `users`; for admins."""
        answer: Json = self._call("POST", "/reservations", {"name": name, **reservation})
        return answer

    def cancel_reservation(self, name: str) -> None:
        """End a reservation now, or before it begins; for admins."""
        self._call("DELETE", f"/reservations/{quote(name, safe='')}")

    def shares(self, tenant: str | None = None) -> list[Json]:
        """Return the fair-share standing of tenants and their users."""
        answer: list[Json] = self._call("GET", "/shares" + ("" if tenant is None else f"?tenant={quote(tenant)}"))
        return answer

    def alerts(self) -> list[Json]:
        """Return the alerts about the caller's tenants, for admins all: firing, pending, and lately resolved ones."""
        answer: list[Json] = self._call("GET", "/alerts")
        return answer

    def alert_rules(self) -> list[Json]:
        """Return the rules that hold."""
        answer: list[Json] = self._call("GET", "/alerts/rules")
        return answer

    def acknowledge_alert(self, alert_id: str) -> Json:
        """Note that an alert is taken care of: it is not told again while it lasts."""
        answer: Json = self._call("POST", f"/alerts/{quote(alert_id, safe='')}/acknowledge")
        return answer

    def silences(self) -> list[Json]:
        """Return the silences that are not over."""
        answer: list[Json] = self._call("GET", "/silences")
        return answer

    def silence_alerts(self, rule: str = "", labels: str = "", *, for_s: float, why: str = "") -> Json:
        """Tell nothing for a time of alerts of a rule, or with labels such as `tenant="nlp"`."""
        body = {"rule": rule, "labels": labels, "for_s": for_s, "why": why}
        answer: Json = self._call("POST", "/silences", body)
        return answer

    def end_silence(self, silence_id: str) -> None:
        """End a silence."""
        self._call("DELETE", f"/silences/{quote(silence_id, safe='')}")
