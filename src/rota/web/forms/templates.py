"""Forms of templates, for maintainers of their tenants."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from rota.api.access import AccessRole, Principal
from rota.api.data.templates import put_template, remove_template
from rota.files.job_shape import Name
from rota.files.shape import checked
from rota.live.data.template_registry import JobTemplate
from rota.live.intake.audit_entry import Asker
from rota.web import draft
from rota.web.forms.form_dialog import FormField, Values, ask_form
from rota.web.page_context import PageContext
from rota.web.parts.basics import confirm

START = """\
description: What it is for
parameters:
  epochs: {type: integer, default: 10, min: 1, help: "How often all data is seen."}
job:
  resources: {gpus: 1}
  run: python train.py --epochs {{ epochs }}
"""


class _Named(BaseModel):
    name: Name


def changed_tenants(context: PageContext) -> list[str]:
    """Return the tenants whose templates the visitor may change."""
    principal, registry = context.principal(), context.service.tenants
    if principal.role not in (AccessRole.ADMIN, AccessRole.MAINTAINER):
        return []
    known = sorted(principal.tenants or ("default",)) if registry is None else registry.names()
    return [name for name in known if principal.may_change(name)]


async def ask_template(context: PageContext, template: JobTemplate | None = None) -> str | None:
    """Show the form of a template, new or like one that there is; return its tenant and name once it was saved."""
    tenants = changed_tenants(context)
    own = template is not None and template.tenant in tenants
    saved: list[str] = []

    async def send(principal: Principal, values: Values) -> None:
        name = checked(_Named, {"name": values["name"]}, Path("template")).name
        file = draft.plain_values(draft.values_of(values["file"], "template"))
        await put_template(context.service, principal, name, file, values["tenant"], is_new=not own)
        saved.append(f"{values['tenant']}/{name}")

    shown = draft.text_of(template.file.model_dump(mode="json", exclude_unset=True)) if template is not None else START
    tenant = template.tenant if template is not None and own and template.tenant else next(iter(tenants), "default")
    fields = [
        FormField(name="name", label="Name", value="" if template is None else template.name, is_fixed=own),
        FormField(
            name="tenant",
            label="Tenant",
            kind="choice",
            options={each: each for each in tenants},
            value=tenant,
            is_fixed=own,
        ),
        FormField(name="file", label="Template, YAML", kind="code", value=shown),
    ]
    title = "Add a template" if template is None or not own else f"Change template {template.name}"
    about = "{{ name }} stands for a parameter. All users of the tenant can submit it."
    await ask_form(context, title, fields, send, about=about, done="Template saved")
    return saved[-1] if saved else None


async def drop_template(context: PageContext, template: JobTemplate) -> bool:
    """Remove a template of a tenant once the user confirms; return whether it was done."""
    name, tenant = template.name, template.tenant
    consequence = f"Users of tenant {tenant} can't submit it any more. Jobs made of it stay."
    if not await confirm(f"Remove template {name}?", consequence, f"Remove {name}", grave=True):
        return False

    async def carry_out(principal: Principal, asker: Asker) -> None:
        await remove_template(context.service, principal, name, tenant)

    return await context.act(carry_out, f"Template {name} removed")
