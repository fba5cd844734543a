"""Visits of browsers to proxied places: opened by a ticket that works once, held by a cookie of that origin alone."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rota.api.access import Principal, digest_of
from rota.api.proxy.places import ProxyPlace

COOKIE, SECURE_COOKIE = "rota_visit", "__Host-rota_visit"
TICKET_S = 60.0
LIFETIME_S = 12 * 3600.0
MOST_VISITS = 10_000
VISITS_PER_CALLER = 500
Holder = Callable[[], Principal]
"""Returns a caller with its present rights; raises a `RotaError` once there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One browser at one place."""

    place: ProxyPlace
    label: str
    holder: Holder
    caller: str
    """By what its requests are counted."""
    until_s: float = field(compare=False)


class Visits:
    """Tickets and visits, in memory only: after a restart, places are opened again from the manager's pages."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tickets: dict[str, Visit] = {}
        self._open: dict[str, Visit] = {}

    def new_ticket(self, place: ProxyPlace, label: str, holder: Holder, caller: str) -> str:
        """Return a ticket for one visit, to be used within a minute."""
        now_s = self._clock()
        visit = Visit(place=place, label=label, holder=holder, caller=caller, until_s=now_s + TICKET_S)
        return self._keep(self._tickets, visit, now_s)

    def begin(self, ticket: str, label: str) -> tuple[str, Visit] | None:
        """Use a ticket up: return the name of a new visit for the cookie; None for one that is not valid here."""
        now_s = self._clock()
        found = self._tickets.pop(digest_of(ticket), None)
        if found is None or found.until_s <= now_s or found.label != label:
            return None
        visit = Visit(
            place=found.place, label=label, holder=found.holder, caller=found.caller, until_s=now_s + LIFETIME_S
        )
        return self._keep(self._open, visit, now_s), visit

    def find(self, cookie_header: str, label: str, *, secure: bool) -> Visit | None:
        """Return the visit that a request's cookies name at the origin of a label; None without one.

        Pages of other labels may have set a cookie of the same name for the whole domain: each is tried.
        """
        name = SECURE_COOKIE if secure else COOKIE
        now_s = self._clock()
        for pair in cookie_header.split(";"):
            key, _, value = pair.strip().partition("=")
            found = self._open.get(digest_of(value)) if key == name else None
            if found is not None and found.label == label and found.until_s > now_s:
                return found
        return None

    def _keep(self, kept: dict[str, Visit], visit: Visit, now_s: float) -> str:
        for name in [name for name, each in kept.items() if each.until_s <= now_s]:
            del kept[name]
        own = [name for name, each in kept.items() if each.caller == visit.caller]
        for oldest in own[: max(len(own) - VISITS_PER_CALLER + 1, 0)]:
            del kept[oldest]
        while len(kept) >= MOST_VISITS:
            del kept[next(iter(kept))]
        name = secrets.token_urlsafe(32)
        kept[digest_of(name)] = visit
        return name


def without_own_cookies(header: str, own: frozenset[str]) -> str:
    """Return a Cookie header without the manager's cookies."""
    pairs = [pair.strip() for pair in header.split(";")]
    return "; ".join(pair for pair in pairs if pair and pair.partition("=")[0].strip() not in own)


def cookie_name(header: str) -> str:
    """Return the name in a Set-Cookie header, as browsers read it."""
    return header.partition(";")[0].partition("=")[0].strip()
