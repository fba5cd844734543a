"""Cards, tiles, states, bars, and the question before an action."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from nicegui import html, ui


@contextmanager
def card(title: str, about: str = "", *, wide: bool = False) -> Iterator[None]:
    """A part of a page under a title."""
    with html.section().classes("card wide" if wide else "card"):
        with html.div().classes("card-head"):
            html.h2(title)
            if about:
                html.span(about).classes("muted")
        yield


class Tile:
    """One number that matters, and what it means."""

    def __init__(self, title: str) -> None:
        with html.section().classes("tile"):
            html.h2(title)
            self._value = html.div().classes("tile-value")
            self._note = html.div().classes("muted")

    def show(self, value: str, note: str) -> None:
        """Say what it is now."""
        say(self._value, value)
        say(self._note, note)


def say(element: Any, text: str) -> None:
    """Change an element's text, if it is another."""
    if element._text != text:
        element._text = text
        element.update()


def chip(state: str) -> None:
    """A state, as a word with a colour."""
    html.span(state).classes(f"chip chip-{state}")


def empty(text: str, hint: str = "") -> None:
    """What stands where there is nothing to show."""
    with html.div().classes("empty"):
        html.p(text)
        if hint:
            html.p(hint).classes("muted")


def bar(parts: Sequence[tuple[str, float, str]], whole: float, label: str) -> None:
    """Parts of a whole side by side: (what, how much, class of its colour)."""
    with html.div(role="img", **{"aria-label": label}).classes("bar"):
        for what, share, colour in parts:
            if share > 0:
                html.div(title=what).classes(f"bar-part {colour}").style(f"width:{100 * share / whole:.3f}%")


def legend(parts: Sequence[tuple[str, str]]) -> None:
    """What the colours mean: (words, class)."""
    with html.div().classes("legend"):
        for words, colour in parts:
            with html.span().classes("legend-item"):
                html.span().classes(f"swatch {colour}").props("aria-hidden=true")
                html.span(words)


def link(text: str, target: str) -> None:
    """A link within the dashboard."""
    html.a(text, href=target).classes("text-link")


async def confirm(question: str, consequence: str, verb: str, *, grave: bool = False) -> bool:
    """Ask before something is done."""
    with ui.dialog() as dialog, html.div().classes("card dialog"):
        dialog.props["aria-label"] = question
        html.h2(question)
        html.p(consequence)
        with html.div().classes("dialog-actions"):
            ui.button("Back", color=None, on_click=lambda: dialog.submit(False)).props("flat no-caps")
            ui.button(verb, color=None, on_click=lambda: dialog.submit(True)).props("unelevated no-caps").classes(
                "grave" if grave else "primary"
            )
    dialog.on("hide", dialog.delete)  # and not before: what had the focus gets it back when it is hidden
    return bool(await dialog)


def button(text: str, icon: str, *, primary: bool = False, grave: bool = False) -> ui.button:
    """A button that does something; attach what with `on_click`."""
    made = ui.button(text, icon=icon, color=None).props("unelevated no-caps" if primary else "outline no-caps")
    return made.classes("primary" if primary else "grave-outline" if grave else "plain")
