"""Reservations in the records of a manager."""

from __future__ import annotations

from collections.abc import Sequence

from rota.live.loop.record import dump
from rota.live.reservations.reservation import NodeReservation, decode_reservation
from rota.store.records import Records

KEY = "reservations"
"""Under which name the records keep them."""
PAST_KEY = "reservations-past"
"""The same of those that are over, for what-if questions about those days."""
MOST_PAST, PAST_S = 1000, 30 * 86400.0


def with_past(records: Records, over: Sequence[NodeReservation], now_s: float) -> str:
    """Return what to store of reservations that are over: those of the last days, and these."""
    known = [each for each in records.setting(PAST_KEY) or () if each["until_s"] > now_s - PAST_S]
    return dump([*known, *(each.encode() for each in over)][-MOST_PAST:])


def reservations_since(records: Records, since_s: float) -> list[NodeReservation]:
    """Return the reservations that were not over at a moment of the wall clock."""
    values = [*(records.setting(PAST_KEY) or ()), *(records.setting(KEY) or ())]
    return [each for each in map(decode_reservation, values) if each.until_s > since_s]


def reservations_in(records: Records) -> list[NodeReservation]:
    """Return the reservations that are stored, those that have just ended included."""
    return [decode_reservation(each) for each in records.setting(KEY) or ()]
