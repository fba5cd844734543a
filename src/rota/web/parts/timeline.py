"""The timeline of a job: a bar of its states, to scale, and the list of its events."""

from __future__ import annotations

from typing import Any

from nicegui import html

from rota.live.views.job_timeline import TimelineEvent
from rota.store import clock
from rota.web import words
from rota.web.parts.basics import empty

MAX_EVENTS = 200


def show_timeline(life: list[TimelineEvent], row: Any) -> None:
    """Draw the timeline into the current element."""
    if not life:
        empty("The journal no longer covers this job.")
        return
    now_s = row.ended_s if row.ended_s is not None else max(clock.now_s(), life[-1].at_s)
    changes = [moment for moment in life if moment.state is not None]
    ends = [moment.at_s for moment in changes[1:]] + [now_s]
    spans = [
        (str(change.state.value), change.at_s, end_s)
        for change, end_s in zip(changes, ends, strict=True)
        if change.state
    ]
    whole_s = max(now_s - life[0].at_s, 1e-9)
    label = ", then ".join(f"{state} {words.duration(end_s - at_s)}" for state, at_s, end_s in spans[:20])
    with html.div(role="img", **{"aria-label": label}).classes("life-bar"):
        for state, at_s, end_s in spans:
            share = 100 * (end_s - at_s) / whole_s
            if share > 0:
                title = f"{state} for {words.duration(end_s - at_s)}"
                html.div(title=title).classes(f"life-part life-{state}").style(f"width:{share:.3f}%")
    with html.ol().classes("life-list"):
        for moment in life[-MAX_EVENTS:]:
            with html.li():
                html.span(words.moment(moment.at_s)[:19], title=words.ago(moment.at_s)).classes("mono muted nowrap")
                html.span().classes(f"dot life-{moment.state.value}" if moment.state else "dot").props(
                    "aria-hidden=true"
                )
                html.span(moment.what)
                if moment.state is not None and moment.state.value not in moment.what:
                    html.span(moment.state.value).classes("muted")
