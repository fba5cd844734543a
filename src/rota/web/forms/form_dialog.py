"""A form in a dialog: its fields, one message about what is wrong, and nothing changed or lost until it is right."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from nicegui import html, ui

from rota.api.access import Principal, Unknown
from rota.core.errors import RotaError
from rota.web.page_context import PageContext
from rota.web.parts.basics import set_text

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """One field of a form; its value is text, and of a `check` whether it is ticked."""

    name: str
    label: str
    kind: Literal["text", "long", "code", "choice", "check"] = "text"
    value: str | bool = ""
    options: Mapping[str, str] = field(default_factory=dict)
    """Of a choice: what is shown for each value."""
    hint: str = ""
    is_fixed: bool = False
    is_wide: bool = False


async def ask_form(
    context: PageContext,
    title: str,
    fields: Sequence[FormField],
    send: Callable[[Principal, Values], Awaitable[object]],
    *,
    about: str = "",
    verb: str = "Save",
    done: str = "Saved",
) -> bool:
    """Show a form until its values were sent or the user leaves it; return whether they were sent.

    `send` raises a `RotaError` for values that it refuses: the form then stays open, with the message.
    """
    with ui.dialog().props("no-backdrop-dismiss") as dialog, html.div().classes("card dialog dialog-form"):
        dialog.props["aria-label"] = title
        html.h2(title)
        if about:
            html.p(about).classes("muted")
        with html.div().classes("form"):
            inputs = {each.name: _input(each) for each in fields}
        next(inputs[each.name] for each in fields if not each.is_fixed).props("autofocus")
        wrong = html.div().classes("trouble").props("role=alert")
        with html.div().classes("dialog-actions"):
            ui.button("Back", color=None, on_click=lambda: dialog.submit(False)).props("flat no-caps")
            save = ui.button(verb, color=None).props("unelevated no-caps").classes("primary")

    async def press() -> None:
        save.disable()
        set_text(wrong, "")
        try:
            await send(context.principal(), {name: _value(element) for name, element in inputs.items()})
        except Unknown:
            ui.navigate.to("/login")
        except RotaError as error:
            set_text(wrong, str(error))
        else:
            dialog.submit(True)
        save.enable()

    save.on_click(press)
    dialog.on("hide", dialog.delete)
    is_sent = bool(await dialog)
    if is_sent:
        ui.notify(done, type="positive", position="top")
    return is_sent


def _value(element: Any) -> str | bool:
    found = element.value
    return found if isinstance(found, bool) else str(found or "").strip()


def _input(each: FormField) -> Any:
    element: Any
    if each.kind == "check":
        element = ui.checkbox(each.label, value=bool(each.value))
    elif each.kind == "choice":
        element = ui.select(dict(each.options), value=each.value, label=each.label)
        element.props("outlined dense options-dense stack-label")
    elif each.kind == "text":
        element = ui.input(each.label, value=str(each.value), placeholder=each.hint)
        element.props("outlined dense stack-label autocomplete=off")
    else:
        element = ui.textarea(each.label, value=str(each.value), placeholder=each.hint)
        element.props("outlined dense stack-label autocomplete=off spellcheck=false").classes("form-wide")
        element.props('input-class="yaml" rows=18' if each.kind == "code" else 'input-class="yaml" rows=2 autogrow')
    if each.is_wide:
        element.classes("form-wide")
    if each.is_fixed:
        element.disable()
    return element


def listed(text: str) -> list[str]:
    """Return the parts of a text between commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def pairs(text: str, what: str) -> dict[str, str]:
    """Return the values by name of lines like NAME=VALUE; an error names the line, but nothing behind its name."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        name, equals, value = line.strip().partition("=")
        if not name and not equals:
            continue
        if not name.strip() or not equals:
            raise RotaError(f"{what}: line {number} must be like NAME=VALUE")
        found[name.strip()] = value.strip()
    return found
