"""The templates of a manager: those that come with Rota, which all users have, and those of each tenant."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from rota.core.errors import RotaError, did_you_mean
from rota.files.templates.template_file import TemplateFile, library, template_file
from rota.live.intake.audit_entry import Asker, audit_entry
from rota.live.intake.requests import NotFound
from rota.live.loop.control import Control
from rota.live.loop.entry import LoopEntry
from rota.live.loop.record import dump
from rota.store.records import Records
from rota.sweeps.file import sweep_file

Json = dict[str, Any]
KEY = "templates"
"""Under which name the records keep those of tenants."""
MOST_OF_TENANT = 200
MOST_BYTES = 65536
MOST_BYTES_OF_TENANT = 2 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTemplate:
    """A template with its name and the tenant that it belongs to; those of Rota belong to none."""

    name: str
    tenant: str | None
    file: TemplateFile


class TemplateRegistry:
    """Finds templates by name; a tenant's own comes before one of Rota's."""

    def __init__(self, control: Control, records: Records) -> None:
        self._control = control
        self._stored: dict[str, dict[str, Json]] = records.setting(KEY) or {}
        self._files: dict[tuple[str, str], TemplateFile] = {}
        """Those of tenants, as they were read."""
        self._changing = asyncio.Lock()

    def visible(self, tenants: Collection[str] | None) -> list[JobTemplate]:
        """Return the templates that a user of some tenants has; None means of all tenants."""
        found = [JobTemplate(name=name, tenant=None, file=file) for name, file in library().items()]
        for tenant, own in sorted(self._stored.items()):
            if tenants is None or tenant in tenants:
                found += [
                    JobTemplate(name=name, tenant=tenant, file=file)
                    for name in sorted(own)
                    if (file := self._valid(tenant, name)) is not None
                ]
        return found

    def find(self, name: str, tenant: str) -> JobTemplate:
        """Return the template that a name means in a tenant; raises `NotFound` if there is none."""
        own = self._stored.get(tenant, {})
        if name in own:
            return JobTemplate(name=name, tenant=tenant, file=self._file(tenant, name))
        if name in library():
            return JobTemplate(name=name, tenant=None, file=library()[name])
        raise NotFound(f"tenant {tenant} has no template {name[:64]!r}; {did_you_mean(name[:64], {*own, *library()})}")

    def _file(self, tenant: str, name: str) -> TemplateFile:
        if (tenant, name) not in self._files:
            self._files[tenant, name] = template_file(self._stored[tenant][name], name)
        return self._files[tenant, name]

    def _valid(self, tenant: str, name: str) -> TemplateFile | None:
        """A template, unless this Rota refuses what an older one accepted."""
        try:
            return self._file(tenant, name)
        except RotaError:
            return None

    async def put(self, name: str, tenant: str, values: Json, asker: Asker) -> JobTemplate:
        """Add a template to a tenant, or replace it."""
        if len(dump(values)) > MOST_BYTES:
            raise RotaError(f"template {name}: it is longer than {MOST_BYTES >> 10} KiB")
        file = template_file(values, name)
        if file.sweep is not None:
            sweep_file(file.sample()["sweep"], f"template {name}")
        async with self._changing:
            own = self._stored.get(tenant, {})
            if name not in own and len(own) >= MOST_OF_TENANT:
                raise RotaError(f"tenant {tenant} has {MOST_OF_TENANT} templates already; remove some")
            others = sum(len(dump(each)) for key, each in own.items() if key != name)
            if others + len(dump(values)) > MOST_BYTES_OF_TENANT:
                raise RotaError(
                    f"template {name}: those of tenant {tenant} have more than {MOST_BYTES_OF_TENANT >> 20} MiB"
                )
            after = {**self._stored, tenant: {**own, name: values}}
            await self._write(after, asker, "change" if name in own else "add", f"{tenant}/{name}")
            self._files.pop((tenant, name), None)
        return JobTemplate(name=name, tenant=tenant, file=file)

    async def remove(self, name: str, tenant: str, asker: Asker) -> None:
        """Remove a template of a tenant."""
        async with self._changing:
            own = self._stored.get(tenant, {})
            if name not in own:
                raise NotFound(f"tenant {tenant} has no template {name[:64]!r} of its own")
            left = {each: values for each, values in own.items() if each != name}
            await self._write({**self._stored, tenant: left}, asker, "remove", f"{tenant}/{name}")
            self._files.pop((tenant, name), None)

    async def _write(self, after: Mapping[str, dict[str, Json]], asker: Asker, what: str, thing: str) -> None:
        entry = LoopEntry([], settings={KEY: dump(dict(after))}, audit=[audit_entry(asker, f"template-{what}", thing)])
        await self._control.apply(entry)
        self._stored = dict(after)
