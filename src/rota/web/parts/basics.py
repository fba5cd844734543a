"""Shared elements: cards, tiles, state chips, bars, and the confirmation dialog."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from nicegui import html, ui

from rota.live.loop.record import state_text


@contextmanager
def card(title: str, about: str = "", *, wide: bool = False) -> Iterator[None]:
    """Build a titled section of a page."""
    with html.section().classes("card wide" if wide else "card"):
        with html.div().classes("card-head"):
            html.h2(title)
            if about:
                html.span(about).classes("muted")
        yield


class Tile:
    """A headline number with a note."""

    def __init__(self, title: str) -> None:
        with html.section().classes("tile"):
            html.h2(title)
            self._value = html.div().classes("tile-value")
            self._note = html.div().classes("muted")

    def show(self, value: str, note: str) -> None:
        """Set the value and the note."""
        set_text(self._value, value)
        set_text(self._note, note)


def set_text(element: Any, text: str) -> None:
    """Set an element's text, if it differs."""
    if element._text != text:
        element._text = text
        element.update()


def chip(state: str, number: str = "") -> None:
    """Show a job state as a coloured label, with the number of jobs before it where several are meant."""
    html.span(f"{number}{state_text(state)}").classes(f"chip chip-{state}")


def empty(text: str, hint: str = "") -> None:
    """Show an empty state, with a hint."""
    with html.div().classes("empty"):
        html.p(text)
        if hint:
            html.p(hint).classes("muted")


def bar(parts: Sequence[tuple[str, float, str]], whole: float, label: str) -> None:
    """Draw a stacked bar; each part is (label, amount, CSS class)."""
    with html.div(role="img", **{"aria-label": label}).classes("bar"):
        for what, share, colour in parts:
            if share > 0:
                html.div(title=what).classes(f"bar-part {colour}").style(f"width:{100 * share / whole:.3f}%")


def legend(parts: Sequence[tuple[str, str]]) -> None:
    """Show what the colours mean; each entry is (text, CSS class)."""
    with html.div().classes("legend"):
        for text, colour in parts:
            with html.span().classes("legend-item"):
                html.span().classes(f"swatch {colour}").props("aria-hidden=true")
                html.span(text)


def link(text: str, target: str) -> None:
    """Show a link within the dashboard."""
    html.a(text, href=target).classes("text-link")


async def confirm(question: str, consequence: str, verb: str, *, grave: bool = False) -> bool:
    """Ask the user to confirm an action; return the answer."""
    with ui.dialog() as dialog, html.div().classes("card dialog"):
        dialog.props["aria-label"] = question
        html.h2(question)
        html.p(consequence)
        with html.div().classes("dialog-actions"):
            ui.button("Back", color=None, on_click=lambda: dialog.submit(False)).props("flat no-caps")
            ui.button(verb, color=None, on_click=lambda: dialog.submit(True)).props("unelevated no-caps").classes(
                "grave" if grave else "primary"
            )
    dialog.on("hide", dialog.delete)  # not earlier: hiding the dialog returns the focus to its previous element
    return bool(await dialog)


def row_actions(name: str, change: Callable[[], object], remove: Callable[[], object]) -> None:
    """Show the cell of a row with buttons that change and remove it; they name it."""
    with html.td(), html.div().classes("row-actions"):
        for verb, icon, action in (("Change", "edit", change), ("Remove", "delete", remove)):
            made = ui.button(icon=icon, color=None, on_click=action).props("flat round dense").classes("quiet")
            made.props["aria-label"] = f"{verb} {name}"
            made.tooltip(verb)


def button(text: str, icon: str, *, primary: bool = False, grave: bool = False) -> ui.button:
    """Create a button; the caller attaches its handler with `on_click`."""
    made = ui.button(text, icon=icon, color=None).props("unelevated no-caps" if primary else "outline no-caps")
    return made.classes("primary" if primary else "grave-outline" if grave else "plain")
