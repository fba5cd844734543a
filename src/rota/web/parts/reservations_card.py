"""The reservations that are not over: nodes, the group that they are kept for, and the time."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import html

from rota.live.reservations.reservation import NodeReservation
from rota.store import clock
from rota.web import words

MOST = 50
_COLUMNS = (("Reservation", ""), ("Nodes", ""), ("For", ""), ("From", ""), ("Until", ""), ("", "hide-phone"))


class ReservationsCard:
    """A card with a table; it is not shown while there are none."""

    def __init__(self) -> None:
        self._drawn: object = None
        self._whole = html.section().classes("card table-card").props('data-testid="reservations"')
        with self._whole:
            with html.div().classes("card-head padded"):
                html.h2("Reservations")
                html.span("nodes that only jobs of a tenant or of some users may use in a time").classes("muted")
            with html.table().classes("table").props('aria-label="Reservations"'):
                with html.thead(), html.tr():
                    for title, classes in _COLUMNS:
                        html.th(title, scope="col").classes(classes)
                self._body = html.tbody()
            self._more = html.p().classes("muted padded")
        self._whole.set_visibility(False)

    def show(self, found: Sequence[NodeReservation]) -> None:
        """Show them, the next one first."""
        now_s = clock.shown_s(clock.now_s())
        drawn = [(each, each.is_open(now_s)) for each in found]
        if drawn == self._drawn:
            return
        self._drawn = drawn
        self._whole.set_visibility(bool(found))
        self._body.clear()
        with self._body:
            for each, is_open in drawn[:MOST]:
                with html.tr():
                    html.td(each.name).classes("name-cell")
                    html.td(", ".join(each.nodes))
                    html.td(each.group)
                    for at_s in (each.from_s, each.until_s):
                        html.td(words.moment(at_s - clock.shown_s(0.0)))
                    html.td("now" if is_open else "to come").classes("hide-phone")
        self._more.set_text(f"{len(found) - MOST} more" if len(found) > MOST else "")
