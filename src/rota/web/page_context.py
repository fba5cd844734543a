"""The context of a page: the manager's service, the visitor, and notifications of changes."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from fastapi import Request
from nicegui import context, ui
from sqlalchemy.exc import DBAPIError

from rota.api.access import AccessRole, Principal, Unknown
from rota.api.service import Service
from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.live.intake.audit_entry import Asker
from rota.live.loop.entry import News
from rota.live.views.recent import Recent
from rota.live.views.tenant_usage import TenantGuarantee, TenantUse
from rota.live.workers.whatif import WhatIf
from rota.web.sessions import Visitor

CHECK_EVERY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PageContext:
    """One open page: its request, and the services that it reads."""

    service: Service
    what_if: WhatIf
    request: Request

    @property
    def visitor(self) -> Visitor:
        """The visitor whose browser opened the page."""
        found = self.request.scope["rota.visitor"]
        assert isinstance(found, Visitor)
        return found

    def principal(self) -> Principal:
        """Return the principal whose rights apply now; raises `Unknown` once its token is revoked."""
        return self.visitor.principal()

    @property
    def cluster(self) -> Cluster:
        """The current cluster configuration."""
        return self.service.lookout.promised.cluster

    @property
    def guarantees(self) -> Mapping[str, TenantGuarantee]:
        """The tenants' current guarantees."""
        return self.service.lookout.promised.now()

    @property
    def recent(self) -> Recent:
        """The history of the last day."""
        return self.service.lookout.recent

    def uses(self) -> dict[str, TenantUse]:
        """Return the current usage of the tenants that the visitor may see."""
        return self.service.lookout.uses(self.tenants())

    @property
    def is_admin(self) -> bool:
        """Whether the visitor is an admin."""
        return self.principal().role is AccessRole.ADMIN

    @property
    def may_submit(self) -> bool:
        """Whether the visitor may submit jobs of at least one tenant."""
        return self.principal().role is not AccessRole.VIEWER

    @property
    def may_study(self) -> bool:
        """Whether the visitor may simulate the jobs of all tenants."""
        return self.may_submit and self.principal().tenants is None

    def tenants(self) -> tuple[str, ...] | None:
        """Return the tenants that the visitor may see; None means all."""
        allowed = self.principal().tenants
        return None if allowed is None else tuple(sorted(allowed))

    async def act(self, action: Callable[[Principal, Asker], Awaitable[object]], done: str) -> bool:
        """Carry out an action as the visitor and notify of the outcome; return whether it succeeded."""
        try:
            principal = self.principal()
            await action(principal, principal.asker)
        except Unknown:
            ui.navigate.to("/login")
            return False
        except RotaError as error:
            ui.notify(str(error), type="negative", position="top", timeout=8000, close_button="close")
            return False
        ui.notify(done, type="positive", position="top")
        return True

    def follow(
        self,
        update: Callable[[], Awaitable[None]],
        *,
        about: Callable[[News], bool] = lambda _: True,
        every_s: float = 15.0,
    ) -> None:
        """Update the page when it opens, soon after each relevant change, and every `every_s`, while it is open."""
        changed = [True]
        last_s = [time.monotonic()]

        def on_news(news: Sequence[News]) -> None:
            changed[0] = changed[0] or any(about(each) for each in news)

        async def refresh() -> None:
            if not self.visitor.is_known():
                ui.navigate.to("/login")
                return
            if changed[0] or time.monotonic() - last_s[0] > every_s:
                changed[0] = False
                try:
                    await update()
                except DBAPIError as error:  # the page stays as it was, and is updated when the database is back
                    changed[0] = True
                    self.service.control.storage.fails(error)
                last_s[0] = time.monotonic()

        context.client.on_delete(self.service.control.listen(on_news))
        ui.timer(CHECK_EVERY_S, refresh)
