"""A form and its job file side by side, each following the other; tried out before it is sent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from nicegui import html, ui
from nicegui.events import ValueChangeEventArguments

from rota.api.access import Principal
from rota.api.jobs import visible
from rota.core.errors import RotaError
from rota.live.loop.requests import Asker, NotFound
from rota.live.workers.forecast import Forecast
from rota.web import draft, words
from rota.web.desk import PageContext
from rota.web.frame import heading
from rota.web.parts.basics import button, card, confirm, empty, say

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of the form, and where its value stands in the job file."""

    path: str
    label: str
    kind: Literal["text", "whole", "number", "command", "list"] = "text"
    hint: str = ""


FIELDS: tuple[Field, ...] = (
    Field(path="name", label="Name"),
    Field(path="tenant", label="Tenant", hint="default"),
    Field(path="run", label="Command", kind="command"),
    Field(path="workers", label="Tasks", kind="whole", hint="1"),
    Field(path="resources.gpus", label="GPUs per task", kind="number", hint="0"),
    Field(path="resources.gpu", label="GPU types, best first", kind="list", hint="any"),
    Field(path="resources.cpus", label="CPUs per task", kind="number", hint="not counted"),
    Field(path="resources.memory", label="Memory per task", hint="e.g. 16Gi"),
    Field(path="priority", label="Priority", kind="whole", hint="0; -1 is opportunistic"),
    Field(path="time_limit", label="Time limit", hint="e.g. 12h"),
    Field(path="max_restarts", label="Restarts after failures", kind="whole"),
    Field(path="depends_on", label="Waits for jobs", kind="list", hint="ids or names"),
    Field(path="workdir", label="Folder", hint="of the command"),
)


async def build(desk: PageContext) -> None:
    """The whole page."""
    if not desk.may_submit:
        html.h1("Submit")
        empty("A viewer's token can't submit jobs.")
        return
    values, note = await _start(desk)
    SubmitPage(desk, values, note)


async def _start(desk: PageContext) -> tuple[Json, str]:
    """What the form begins with: an example, or another job."""
    source = desk.request.query_params.get("clone", "")[:64]
    if not source:
        return dict(draft.START), ""
    try:
        row = await visible(desk.service, desk.who(), source)
    except NotFound as error:
        return dict(draft.START), str(error)
    spec = desk.service.records.spec(row.id) or {}
    values, missing = draft.clone_of(spec)
    secrets = f" Its secrets are not copied; give them again: {', '.join(missing)}." if missing else ""
    return values, f"A copy of job {row.id}.{secrets}"


class SubmitPage:
    """The draft, and both of its faces."""

    def __init__(self, desk: PageContext, values: Json, note: str) -> None:
        self._desk = desk
        self._values = values
        self._following = False
        """Whether a change is the other face's, and not the user's."""
        self._inputs: dict[str, Any] = {}
        with heading("Submit", note or "Fill in the form or write the job file; each follows the other."):
            button("Dry run", "science").on_click(self._try_out)
            button("Submit", "send", primary=True).on_click(self._submit)
        self._verdict = html.div().classes("verdict").props("role=status")
        with html.div().classes("grid submit-grid"):
            with card("Form"), html.div().classes("form"):
                for field in FIELDS:
                    self._inputs[field.path] = self._input(field)
            with card("Job file", "YAML"):
                self._text = ui.textarea(value=draft.text_of(values), on_change=self._text_changed)
                self._text.props('outlined debounce=250 input-class="yaml" aria-label="Job file" spellcheck=false')
                self._trouble = html.div().classes("trouble").props("role=alert")
                html.p("Every field of a job file can be written here, also those that the form lacks.").classes(
                    "muted"
                )
        self._fill()

    def _input(self, field: Field) -> Any:
        made: Any
        if field.kind == "command":
            made = ui.textarea(field.label).props('input-class="yaml" rows=3 autogrow').classes("form-wide")
        else:
            made = ui.input(field.label, placeholder=field.hint)
        made.props("outlined dense debounce=250 stack-label")
        made.on_value_change(lambda event: self._field_changed(field, event))
        return made

    # -- each face follows the other ---------------------------------------------------------------

    def _field_changed(self, field: Field, event: ValueChangeEventArguments[str | None]) -> None:
        if self._following:
            return
        draft.put(self._values, field.path, _read(field, event.value or ""))
        self._show_text()

    def _text_changed(self, event: ValueChangeEventArguments[str | None]) -> None:
        if self._following:
            return
        try:
            self._values = draft.values_of(event.value or "")
            say(self._trouble, "")
        except RotaError as error:
            say(self._trouble, str(error))
            return
        self._fill()

    def _show_text(self) -> None:
        self._following = True
        self._text.set_value(draft.text_of(self._values))
        say(self._trouble, "")
        self._following = False

    def _fill(self) -> None:
        self._following = True
        for field in FIELDS:
            shown = _show(draft.get(self._values, field.path))
            if (self._inputs[field.path].value or "") != shown:
                self._inputs[field.path].set_value(shown)
        self._following = False

    # -- trying and sending ------------------------------------------------------------------------

    async def _foresee(self) -> Forecast | None:
        """When the job would start; None if it is refused, which is said."""
        self._say("", "")
        try:
            values = draft.checked(draft.values_of(self._text.value or ""))
            who = self._desk.who()
            who.must_change(str(values.get("tenant", "default")))
            return await self._desk.service.requests.try_out(values, Asker(name=who.name))
        except RotaError as error:
            self._say(str(error), "refused")
            return None

    async def _try_out(self) -> None:
        found = await self._foresee()
        if found is not None:
            self._say(_forecast(found), "accepted")

    async def _submit(self) -> None:
        found = await self._foresee()
        if found is None:
            return
        values = draft.checked(draft.values_of(self._text.value or ""))
        name = values.get("name", "the job")
        if not await confirm(f"Submit {name}?", _forecast(found), "Submit"):
            return
        sent: list[str] = []

        async def send(who: Principal, asker: Asker) -> None:
            who.must_change(str(values.get("tenant", "default")))
            sent.extend(await self._desk.service.requests.submit([values], asker))

        if await self._desk.act(send, "The job is submitted"):
            ui.navigate.to(f"/jobs/{sent[0]}")

    def _say(self, text: str, kind: str) -> None:
        self._verdict.classes(replace=f"verdict {kind}")
        say(self._verdict, text)


def _read(field: Field, text: str) -> Any:
    """A field's text as the value that the job file gets; what can't be read stays a text, and is refused later."""
    text = text.strip() if field.kind != "command" else text
    if not text:
        return None
    if field.kind == "list":
        parts = [part.strip() for part in text.split(",") if part.strip()]
        return parts if len(parts) != 1 or field.path == "depends_on" else parts[0]
    if field.kind in ("whole", "number"):
        try:
            number = float(text)
        except ValueError:
            return text
        if not math.isfinite(number):
            return text
        return int(number) if number == int(number) else number
    return text


def _show(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)


def _forecast(found: Forecast) -> str:
    if found.usual_s is None:
        return "It would be accepted, but is not expected to start within a month, as things are."
    if found.position <= 1 and found.latest_s is not None and words.ago(found.latest_s) == "now":
        return "It would start at once."
    latest = "later than in a month" if found.latest_s is None else f"{words.clock(found.latest_s)} UTC"
    span = f"between {words.clock(found.earliest_s)} and {latest}"
    guess = "" if found.known else " A guess: nothing is known of how long the jobs ahead run."
    return f"It would start {words.ago(found.usual_s)}, {span}, as number {found.position} in line.{guess}"
