"""A form and a job file side by side, kept in sync; dry-run before the job is submitted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from nicegui import html, ui
from nicegui.events import ValueChangeEventArguments

from rota.api.access import Principal
from rota.api.jobs import visible
from rota.core.errors import RotaError
from rota.forecast.value import Forecast
from rota.live.intake.audit_entry import Asker
from rota.live.intake.requests import NotFound
from rota.web import draft, words
from rota.web.frame import heading
from rota.web.page_context import PageContext
from rota.web.parts.basics import button, card, confirm, empty, set_text

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of the form, and the path of its value in the job file."""

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
    Field(path="resources.gpu", label="GPU types, preferred first", kind="list", hint="any"),
    Field(path="resources.cpus", label="CPUs per task", kind="number", hint="not limited"),
    Field(path="resources.memory", label="Memory per task", hint="e.g. 16Gi"),
    Field(path="priority", label="Priority", kind="whole", hint="0; -1 is opportunistic"),
    Field(path="time_limit", label="Time limit", hint="e.g. 12h"),
    Field(path="max_restarts", label="Restarts after failure", kind="whole"),
    Field(path="depends_on", label="Depends on", kind="list", hint="job IDs or names"),
    Field(path="data", label="Data sets", kind="list"),
    Field(path="workdir", label="Working directory"),
)


async def build(context: PageContext) -> None:
    """Build the page."""
    if not context.may_submit:
        html.h1("Submit")
        empty("Your token has the viewer role and can't submit jobs.")
        return
    values, note = await _start(context)
    SubmitPage(context, values, note)


async def _start(context: PageContext) -> tuple[Json, str]:
    """Return the initial values and a note: an example, or a copy of another job."""
    source = context.request.query_params.get("clone", "")[:64]
    if not source:
        return dict(draft.START), ""
    try:
        row = await visible(context.service, context.principal(), source)
    except NotFound as error:
        return dict(draft.START), str(error)
    spec = context.service.records.spec(row.id) or {}
    values, missing = draft.clone_of(spec, is_own=context.principal().may_act_on(row.tenant, row.owner))
    secrets = f" Hidden values are not copied; enter them again: {', '.join(missing)}." if missing else ""
    return values, f"Copy of job {row.id}.{secrets}"


class SubmitPage:
    """The draft, shown as a form and as a job file."""

    def __init__(self, context: PageContext, values: Json, note: str) -> None:
        self._context = context
        self._values = values
        self._syncing = False
        self._obstacle = ""
        """Why a job that is not expected to start finds no devices, as a sentence."""
        """Whether a change comes from the other view rather than from the user."""
        self._inputs: dict[str, Any] = {}
        with heading("Submit", note or "Fill in the form or edit the job file; they stay in sync."):
            button("Dry run", "science").on_click(self._dry_run)
            button("Submit", "send", primary=True).on_click(self._submit)
        self._verdict = html.div().classes("verdict").props("role=status")
        with html.div().classes("grid submit-grid"):
            with card("Form"), html.div().classes("form"):
                for field in FIELDS:
                    self._inputs[field.path] = self._input(field)
            with card("Job file", "YAML"):
                self._text = ui.textarea(value=draft.text_of(values), on_change=self._text_changed)
                self._text.props('outlined input-class="yaml" aria-label="Job file" spellcheck=false')
                self._error = html.div().classes("trouble").props("role=alert")
                html.p("All fields of a job file can be set here, including those missing from the form.").classes(
                    "muted"
                )

    def _input(self, field: Field) -> Any:
        # Its first value is given here: one that is set later would come after what a user has typed already.
        shown = _show(draft.get(self._values, field.path))
        element: Any
        if field.kind == "command":
            element = (
                ui.textarea(field.label, value=shown).props('input-class="yaml" rows=3 autogrow').classes("form-wide")
            )
        else:
            element = ui.input(field.label, value=shown, placeholder=field.hint)
        # No `debounce`: on a slow page Quasar then shows the value of before for a moment, and sends it as if typed.
        element.props("outlined dense stack-label")
        element.on_value_change(lambda event: self._field_changed(field, event))
        return element

    # -- form and job file stay in sync ------------------------------------------------------------

    def _field_changed(self, field: Field, event: ValueChangeEventArguments[str | None]) -> None:
        if self._syncing:
            return
        draft.put(self._values, field.path, _read(field, event.value or ""))
        self._show_text()

    def _text_changed(self, event: ValueChangeEventArguments[str | None]) -> None:
        if self._syncing:
            return
        try:
            self._values = draft.values_of(event.value or "")
            set_text(self._error, "")
        except RotaError as error:
            set_text(self._error, str(error))
            return
        self._fill()

    def _show_text(self) -> None:
        self._syncing = True
        self._text.set_value(draft.text_of(self._values))
        set_text(self._error, "")
        self._syncing = False

    def _fill(self) -> None:
        self._syncing = True
        for field in FIELDS:
            shown = _show(draft.get(self._values, field.path))
            if (self._inputs[field.path].value or "") != shown:
                self._inputs[field.path].set_value(shown)
        self._syncing = False

    # -- dry run and submission --------------------------------------------------------------------

    async def _forecast_start(self) -> Forecast | None:
        """Forecast the start of the job; if it is refused, show why and return None."""
        self._show_verdict("", "")
        try:
            values = draft.plain_values(draft.values_of(self._text.value or ""))
            principal = self._context.principal()
            requests = self._context.service.requests
            values.setdefault("tenant", principal.default_tenant)
            principal.must_change(str(values["tenant"]))
            found = await requests.try_out(values, principal.asker)
            obstacle = await requests.obstacle(values, principal.asker) if found.usual_s is None else None
            self._obstacle = "" if obstacle is None else f" It {obstacle.sentence()}."
            return found
        except RotaError as error:
            self._show_verdict(str(error), "refused")
            return None

    async def _dry_run(self) -> None:
        found = await self._forecast_start()
        if found is not None:
            self._show_verdict(_forecast_text(found) + self._obstacle, "accepted")

    async def _submit(self) -> None:
        found = await self._forecast_start()
        if found is None:
            return
        values = draft.plain_values(draft.values_of(self._text.value or ""))
        name = values.get("name", "the job")
        if not await confirm(f"Submit {name}?", _forecast_text(found) + self._obstacle, "Submit"):
            return
        sent: list[str] = []

        async def send(principal: Principal, asker: Asker) -> None:
            values.setdefault("tenant", principal.default_tenant)
            principal.must_change(str(values["tenant"]))
            sent.extend(await self._context.service.requests.submit([values], asker))

        if await self._context.act(send, "Job submitted"):
            ui.navigate.to(f"/jobs/{sent[0]}")

    def _show_verdict(self, text: str, kind: str) -> None:
        self._verdict.classes(replace=f"verdict {kind}")
        set_text(self._verdict, text)


def _read(field: Field, text: str) -> Any:
    """Parse a field into its value in the job file; text that can't be parsed is kept, for validation to refuse."""
    text = text.strip() if field.kind != "command" else text
    if not text:
        return None
    if field.kind == "list":
        parts = [part.strip() for part in text.split(",") if part.strip()]
        return parts if len(parts) != 1 or field.path in ("depends_on", "data") else parts[0]
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


def _forecast_text(found: Forecast) -> str:
    start, reason = found.start, found.reason
    if start is None or start.median_s is None:
        why = "it is not expected to start within a month, as things are" if reason is None else reason.value
        return f"The job would be accepted, but {why}."
    if found.position <= 1 and start.high_s is not None and words.ago(start.high_s) == "now":
        return "The job would start immediately."
    latest = "more than a month from now" if start.high_s is None else f"{words.clock(start.high_s)} UTC"
    span = f"90% between {words.clock(start.low_s)} and {latest}"
    note = "" if reason is None else f" Note: {reason.value}."
    return (
        f"The job would start {words.ago(start.median_s)}, {span}, at position {found.position} in the queue. "
        f"This rests on {found.basis.sentence()}.{note}"
    )
