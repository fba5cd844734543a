"""Forms of data sets, for admins."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rota.api.access import Principal
from rota.api.data.data_sets import DataSetIn, put_data_set, remove_data_set
from rota.core.errors import RotaError
from rota.files.job_shape import Name
from rota.files.shape import checked
from rota.live.intake.audit_entry import Asker
from rota.store.data.data_sets import DataSet, DataSets
from rota.web.forms.form_dialog import FormField, Values, ask_form, listed, pairs
from rota.web.page_context import PageContext
from rota.web.parts.basics import confirm


class NamedDataSet(DataSetIn):
    """A data set with its name."""

    name: Name


async def ask_data_set(context: PageContext, data_set: DataSet | None = None) -> bool:
    """Show the form of a new data set, or of one that is changed; return whether it was saved."""

    async def send(principal: Principal, values: Values) -> None:
        given = {name: values[name] for name in ("name", "path", "about")}
        given |= {"read_only": not values["writable"], "tenants": listed(values["tenants"])}
        given |= {"options": pairs(values["options"], "options"), "secrets": pairs(values["secrets"], "secrets")}
        if data_set is not None and data_set.secrets and not given["secrets"]:
            principal.must_be_admin()
            given["secrets"] = await _kept_secrets(context, data_set, values["path"])
        wanted = checked(NamedDataSet, given, Path("data set"))
        await put_data_set(context.service, principal, wanted.name, wanted, is_new=data_set is None)

    title = "Add a data set" if data_set is None else f"Change data set {data_set.name}"
    about = "A folder of the manager's machine (also one on NFS), or the URL of a bucket."
    return await ask_form(context, title, _fields(data_set), send, about=about, done="Data set saved")


async def _kept_secrets(context: PageContext, data_set: DataSet, path: str) -> dict[str, str]:
    """Return the secrets of a data set, which belong to its place."""
    if path != data_set.path:
        names = ", ".join(sorted(data_set.secrets))
        raise RotaError(f"secrets: those of the former place don't go to another; enter them again: {names}")
    kept = DataSets(context.service.home)
    return dict((await asyncio.to_thread(kept.unsealed, data_set)).secrets)


def _fields(data_set: DataSet | None) -> list[FormField]:
    shown = data_set or DataSet(name="", path="")
    options = "\n".join(f"{name}={value}" for name, value in shown.options.items())
    known = f"they stay: {', '.join(sorted(shown.secrets))}" if shown.secrets else "NAME=VALUE, kept encrypted"
    return [
        FormField(name="name", label="Name", value=shown.name, is_fixed=data_set is not None),
        FormField(name="tenants", label="For", value=", ".join(shown.tenants), hint="all tenants"),
        FormField(name="path", label="Where", value=shown.path, hint="/data/x or s3://bucket/x", is_wide=True),
        FormField(name="about", label="Description", value=shown.about, is_wide=True),
        FormField(name="writable", label="Jobs may write to it", kind="check", value=not shown.read_only, is_wide=True),
        FormField(
            name="options", label="Options of the URL", kind="long", value=options, hint="NAME=VALUE, one a line"
        ),
        FormField(name="secrets", label="Secrets of the URL", kind="long", hint=known),
    ]


async def drop_data_set(context: PageContext, name: str) -> bool:
    """Forget a data set once the user confirms; return whether it was done."""
    consequence = "Its files stay. Jobs that name it and have not started can't start any more."
    if not await confirm(f"Remove data set {name}?", consequence, f"Remove {name}", grave=True):
        return False

    async def carry_out(principal: Principal, asker: Asker) -> None:
        await remove_data_set(context.service, principal, name)

    return await context.act(carry_out, f"Data set {name} removed")
