"""Templates of jobs: a form of typed parameters for each, and what would be submitted beside it."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from nicegui import html, ui

from rota.api.access import Principal
from rota.core.errors import RotaError
from rota.files.templates.template_file import TemplateParameter
from rota.live.data.template_registry import JobTemplate
from rota.live.intake.audit_entry import Asker
from rota.web import draft
from rota.web.forms.templates import ask_template, changed_tenants, drop_template
from rota.web.frame import heading
from rota.web.page_context import PageContext
from rota.web.parts.basics import button, card, confirm, empty, set_text

Json = dict[str, Any]


async def build(context: PageContext) -> None:
    """Build the page."""
    registry = context.service.templates
    if registry is None or not context.may_submit:
        html.h1("Templates")
        empty("Templates are for users that may submit jobs to a manager of processes.")
        return
    found = registry.visible(context.principal().tenants)
    keys = {f"{each.tenant or ''}/{each.name}": each for each in found}
    wanted = context.request.query_params.get("name", "")[:256]
    key = next((each for each in keys if wanted in (each, each.partition("/")[2])), next(iter(keys)))
    TemplatePage(context, keys, key)


class TemplatePage:
    """The template that is chosen, its form, and the jobs that it stands for."""

    def __init__(self, context: PageContext, templates: dict[str, JobTemplate], key: str) -> None:
        self._context = context
        self._templates = templates
        self._template = templates[key]
        self._values: Json = {}
        self._change: ui.button | None = None
        self._remove: ui.button | None = None
        with heading("Templates", "Choose a template, fill in its parameters, and submit what it stands for."):
            if changed_tenants(context):
                button("Add", "add").on_click(self._add)
                self._change = button("Change", "edit").on_click(self._ask)
                self._remove = button("Remove", "delete", grave=True).on_click(self._drop)
            button("Submit", "send", primary=True).on_click(self._submit)
        self._verdict = html.div().classes("verdict").props("role=alert")
        with html.div().classes("grid submit-grid"):
            with card("Parameters"), html.div().classes("form"):
                names = {each: _label(template) for each, template in templates.items()}
                self._choice = ui.select(names, value=key, label="Template", on_change=self._chosen)
                self._choice.props("outlined dense options-dense stack-label").classes("form-wide")
                self._about = html.p().classes("muted form-wide")
                self._form = html.div().classes("form form-wide")
            with card("What it stands for", "YAML"):
                self._text = html.pre().classes("code").props('tabindex=0 role=region aria-label="Job file"')
        self._show()

    async def _add(self) -> None:
        await self._ask_form(None)

    async def _ask(self) -> None:
        await self._ask_form(self._template)

    async def _ask_form(self, template: JobTemplate | None) -> None:
        saved = await ask_template(self._context, template)
        if saved is not None:
            ui.navigate.to(f"/templates?name={quote(saved)}")

    async def _drop(self) -> None:
        if await drop_template(self._context, self._template):
            ui.navigate.to("/templates")

    def _show_actions(self) -> None:
        """Offer to change and remove the template if it is of one of the visitor's tenants, and to copy Rota's."""
        if self._change is None or self._remove is None:
            return
        own = self._template.tenant in changed_tenants(self._context)
        self._change.set_text("Change" if own else "Copy")
        self._remove.set_visibility(own)

    def _chosen(self) -> None:
        self._template = self._templates[str(self._choice.value)]
        self._show()

    def _show(self) -> None:
        self._values = {}
        self._show_actions()
        set_text(self._about, self._template.file.description)
        self._form.clear()
        with self._form:
            for name, part in self._template.file.parameters.items():
                self._input(name, part)
        self._fill()

    def _input(self, name: str, part: TemplateParameter) -> None:
        """Add the field of a parameter, of the kind that its type asks for."""
        label = name.replace("_", " ")

        def changed(event: Any) -> None:
            self._values[name] = event.value
            self._fill()

        element: Any
        if part.type == "boolean":
            element = ui.checkbox(label, value=bool(part.default), on_change=changed)
        elif part.type == "choice":
            element = ui.select(list(part.choices), value=part.default, label=label, on_change=changed)
            element.props("outlined dense options-dense stack-label")
        else:
            shown = "" if part.default is None else str(part.default)
            element = ui.input(label, value=shown, on_change=changed).props("outlined dense stack-label")
            if part.type != "text":
                element.props("inputmode=decimal")
        if part.help:
            element.tooltip(part.help)

    def _filled(self) -> Json | None:
        """What the template stands for; None, with the reason shown, while a value is missing or wrong."""
        try:
            found = self._template.file.filled(self._values, f"template {self._template.name}")
        except RotaError as error:
            self._verdict.classes(replace="verdict refused")
            set_text(self._verdict, str(error))
            return None
        self._verdict.classes(replace="verdict")
        set_text(self._verdict, "")
        return found

    def _fill(self) -> None:
        found = self._filled()
        if found is not None:
            jobs = found.get("jobs", [])
            note = f"# the first of {len(jobs)} jobs\n" if len(jobs) > 1 else ""
            set_text(self._text, note + draft.text_of(jobs[0] if jobs else found["sweep"]))

    async def _submit(self) -> None:
        found = self._filled()
        if found is None:
            return
        what = "a sweep" if "sweep" in found else f"{len(found['jobs'])} jobs" if len(found["jobs"]) > 1 else "a job"
        if not await confirm(f"Submit {self._template.name}?", f"It is submitted as {what}.", "Submit"):
            return
        sent: list[str] = []

        async def send(principal: Principal, asker: Asker) -> None:
            tenant = self._template.tenant or principal.default_tenant
            principal.must_change(tenant)
            self._context.service.must_exist(tenant)
            if "sweep" in found:
                sweeps = self._context.service.sweeps
                assert sweeps is not None, "a manager with templates has sweeps"
                await sweeps.keeper.start({**found["sweep"], "tenant": tenant}, asker)
            else:
                files = [{**job, "tenant": tenant} for job in found["jobs"]]
                sent.extend(await self._context.service.requests.submit(files, asker))

        if await self._context.act(send, f"Submitted as {what}"):
            ui.navigate.to(f"/jobs/{sent[0]}" if len(sent) == 1 else "/jobs")


def _label(template: JobTemplate) -> str:
    return template.name if template.tenant is None else f"{template.name} ({template.tenant})"
