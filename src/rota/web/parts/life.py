"""A job's life drawn: a bar of its states to scale, and what happened as a list."""

from __future__ import annotations

import time
from typing import Any

from nicegui import html

from rota.live.views.job_timeline import TimelineEvent
from rota.web import words
from rota.web.parts.basics import empty

MOST = 200


def show_life(life: list[TimelineEvent], row: Any) -> None:
    """Draw it into the present place."""
    if not life:
        empty("The journal does not reach back to it.")
        return
    now_s = row.ended_s if row.ended_s is not None else max(time.time(), life[-1].at_s)
    turns = [moment for moment in life if moment.state is not None]
    ends = [moment.at_s for moment in turns[1:]] + [now_s]
    spans = [(str(turn.state.value), turn.at_s, end_s) for turn, end_s in zip(turns, ends, strict=True) if turn.state]
    whole_s = max(now_s - life[0].at_s, 1e-9)
    told = ", then ".join(f"{state} {words.duration(end_s - at_s)}" for state, at_s, end_s in spans[:20])
    with html.div(role="img", **{"aria-label": told}).classes("life-bar"):
        for state, at_s, end_s in spans:
            share = 100 * (end_s - at_s) / whole_s
            if share > 0:
                title = f"{state} for {words.duration(end_s - at_s)}"
                html.div(title=title).classes(f"life-part life-{state}").style(f"width:{share:.3f}%")
    with html.ol().classes("life-list"):
        for moment in life[-MOST:]:
            with html.li():
                html.span(words.moment(moment.at_s)[:19], title=words.ago(moment.at_s)).classes("mono muted nowrap")
                html.span().classes(f"dot life-{moment.state.value}" if moment.state else "dot").props(
                    "aria-hidden=true"
                )
                html.span(moment.what)
                if moment.state is not None and moment.state.value not in moment.what:
                    html.span(moment.state.value).classes("muted")
