"""The tenants of a manager, how long and large their jobs may be, and the highest priority of these, by role.

A tenant is known if a cluster file, the manager's settings or an admin names it. Jobs, filters and tokens of any other
are refused. What an admin changes at run time is stored, audited, and wins over the settings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rota.core.errors import RotaError
from rota.core.model.job import DEFAULT_TENANT, Job
from rota.live.intake.audit_entry import Asker, audit_entry
from rota.live.intake.tenant_limits import TenantLimits
from rota.live.loop.control import Control
from rota.live.loop.entry import LoopEntry
from rota.live.loop.record import dump
from rota.store.records import Records

KEY = "tenants"
"""Under which name the records keep what admins changed."""
GIVEN_KEY = "tenants-given"
"""Under which name the records keep the settings at the last start."""
MEMBER, MAINTAINER = "member", "maintainer"
CAPPED_ROLES = (MEMBER, MAINTAINER)
DEFAULT_CAP = 0
MOST_TENANTS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantSettings:
    """Tenants and caps as the manager's settings state them."""

    names: tuple[str, ...] = ()
    caps: Mapping[str, int] = field(default_factory=dict)
    """The highest priority by role (`member`), by tenant (`nlp`), or by both (`nlp/maintainer`)."""

    def __post_init__(self) -> None:
        for key in self.caps:
            tenant, slash, role = key.rpartition("/")
            if slash and (not tenant or role not in CAPPED_ROLES):
                raise RotaError(
                    f"max_priority: {key!r} is neither a role, a tenant nor TENANT/ROLE; roles are {_roles()}"
                )


class UnknownTenant(RotaError):
    """No such tenant exists."""


class TenantRegistry:
    """Which tenants exist, and the caps of their jobs' priorities."""

    def __init__(
        self, control: Control, records: Records, given: TenantSettings | None = None, *, also: Iterable[str] = ()
    ) -> None:
        """`also` are tenants of tokens, which a database of an older version knows only from there."""
        self._control = control
        self._given = given or TenantSettings()
        stored = records.setting(KEY)
        if stored is None:
            stored = {"names": sorted({*records.tenant_names(), *also} - {"*"}), "caps": {}}
        self._names: dict[str, None] = dict.fromkeys(stored["names"])
        self._caps: dict[str, int] = dict(stored["caps"])
        self._limits = {name: TenantLimits(**limits) for name, limits in stored.get("limits", {}).items()}
        self._changing = asyncio.Lock()
        for key in self._given.caps:
            named = key.rpartition("/")[0] or key
            if named not in (*CAPPED_ROLES, *self.names()):
                raise RotaError(f"max_priority: there is no tenant {named!r}; name it under tenants, or remove it")
        self._note_settings(records)

    def _note_settings(self, records: Records) -> None:
        """Write an audit entry if the settings differ from those of the last start."""
        now: dict[str, Any] = {"names": sorted(self._given.names), "caps": dict(sorted(self._given.caps.items()))}
        before = records.setting(GIVEN_KEY)
        if now == before or (before is None and not self._given.names and not self._given.caps):
            return
        caps = ", ".join(f"{key}={cap}" for key, cap in now["caps"].items()) or "default"
        detail = f"tenants {', '.join(now['names']) or 'none'}; max_priority {caps}"
        entry = LoopEntry([], settings={GIVEN_KEY: dump(now)}, audit=[audit_entry(Asker(), "settings", KEY, detail)])
        self._control.happened(entry)

    def names(self) -> list[str]:
        """Return all tenants."""
        return sorted({*self._stated(), *self._names})

    def _stated(self) -> set[str]:
        """The tenants that the settings or the cluster file name, and the default one."""
        found = {str(DEFAULT_TENANT), *self._given.names}
        present = self._control.present
        if present is not None:
            if present.cluster.tenants is not None:
                found.update(map(str, present.cluster.tenants.shares))
            if present.cluster.cells is not None:
                found.update(map(str, present.cluster.cells.tenants))
        return found

    def must_exist(self, tenant: str) -> None:
        """Raise `UnknownTenant` unless a tenant exists."""
        if tenant not in self.names():
            raise UnknownTenant(
                f"tenant: there is no tenant {tenant[:64]!r}; an admin can add it: rota tenants add {tenant[:64]}"
            )

    def cap(self, role: str, tenant: str) -> int | None:
        """Return the highest priority of a role's jobs in a tenant; None if there is no limit."""
        if role not in CAPPED_ROLES:
            return None
        both = f"{tenant}/{role}"
        for caps in (self._caps, self._given.caps):
            if both in caps:
                return caps[both]
        if tenant in self._given.caps and tenant not in CAPPED_ROLES:
            found = self._given.caps[tenant]
        else:
            found = self._given.caps.get(role, DEFAULT_CAP)
        if role == MAINTAINER:  # may do what members may, unless an admin says otherwise
            return max(found, self.cap(MEMBER, tenant) or DEFAULT_CAP)
        return found

    def refuse_priority(self, role: str, tenant: str, priority: int) -> None:
        """Raise a `RotaError` for a priority above the cap."""
        cap = self.cap(role, tenant)
        if cap is not None and priority > cap:
            raise RotaError(
                f"priority is {priority}; the most that a {role} may give in tenant {tenant!r} is {cap}; "
                "lower it, or ask an admin"
            )

    def admitted(self, job: Job, role: str, *, has_new_priority: bool = True) -> Job:
        """Return a job as its tenant may have it; raise a `RotaError` for one that it may not have."""
        self.must_exist(job.tenant)
        if has_new_priority:
            self.refuse_priority(role, job.tenant, job.priority)
        return self.limits_of(job.tenant).admitted(job)

    def limits_of(self, tenant: str) -> TenantLimits:
        """Return how long and large a tenant's jobs may be."""
        return self._limits.get(tenant, TenantLimits())

    def refuse_raised(self, job_id: str, job: Job, role: str) -> None:
        """Refuse to submit a job again whose priority was raised above what its user may give."""
        cap = self.cap(role, job.tenant)
        if cap is not None and job.priority > cap:
            raise RotaError(
                f"job {job_id} has the priority {job.priority}, and the most that a {role} may give in tenant "
                f"{job.tenant!r} is {cap}; submit it again with priority {cap}, or ask an admin to raise the cap"
            )

    def caps_of(self, tenant: str) -> dict[str, int]:
        """Return the caps of a tenant by role."""
        return {role: cap for role in CAPPED_ROLES if (cap := self.cap(role, tenant)) is not None}

    async def put(
        self, tenant: str, caps: Mapping[str, int], asker: Asker, limits: Mapping[str, float | None] | None = None
    ) -> None:
        """Add a tenant, or change its caps and limits; those that are not given stay."""
        async with self._changing:
            if tenant not in self._names and len(self._names) >= MOST_TENANTS:
                raise RotaError(f"tenant: there are {MOST_TENANTS} tenants already; remove some")
            is_new = tenant not in self.names()
            after = {**self._caps, **{f"{tenant}/{role}": cap for role, cap in caps.items()}}
            said = [f"max_priority of {role} {cap}" for role, cap in caps.items()]
            new_limits = self.limits_of(tenant).changed(limits or {})
            said += [new_limits.words()] if limits else []
            names = {**self._names, tenant: None} if is_new else self._names
            kept = {**self._limits, tenant: new_limits}
            await self._write(names, after, kept, asker, "add" if is_new else "change", tenant, ", ".join(said))

    async def remove(self, tenant: str, asker: Asker) -> None:
        """Remove a tenant that an admin added."""
        async with self._changing:
            if tenant in self._stated():
                raise RotaError(f"tenant: {tenant!r} is named by the settings or the cluster file; remove it there")
            if tenant not in self._names:
                raise RotaError(f"tenant: there is no tenant {tenant[:64]!r}")
            unfinished = [
                name
                for name, live in self._control.state.jobs.items()
                if live.job.tenant == tenant and not live.state.is_final
            ]
            if unfinished:
                raise RotaError(f"tenant: {tenant!r} has {len(unfinished)} unfinished jobs; cancel them first")
            left = {name: None for name in self._names if name != tenant}
            caps = {key: cap for key, cap in self._caps.items() if key.rpartition("/")[0] != tenant}
            limits = {name: each for name, each in self._limits.items() if name != tenant}
            await self._write(left, caps, limits, asker, "remove", tenant, "")

    async def _write(
        self,
        names: dict[str, None],
        caps: dict[str, int],
        limits: dict[str, TenantLimits],
        asker: Asker,
        what: str,
        tenant: str,
        detail: str,
    ) -> None:
        kept = {name: each for name, each in limits.items() if not each.is_empty}
        encoded = {name: each.encode() for name, each in kept.items()}
        value: dict[str, Any] = {"names": list(names), "caps": caps, "limits": encoded}
        audit = audit_entry(asker, f"tenant-{what}", tenant, detail)
        await self._control.apply(LoopEntry([], settings={KEY: dump(value)}, audit=[audit]))
        self._names, self._caps, self._limits = names, caps, kept


def _roles() -> str:
    return " and ".join(CAPPED_ROLES)
