"""What a page works with: the manager's service, who looks, and news of what changes."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from fastapi import Request
from nicegui import context, ui

from rota.api.access import AccessRole, Principal, Unknown
from rota.api.service import Service
from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.live.loop.control import News
from rota.live.loop.requests import Asker
from rota.live.views.recent import Recent
from rota.live.views.tenant_usage import TenantGuarantee, TenantUse
from rota.live.workers.whatif import WhatIf
from rota.web.sessions import Visitor

LOOK_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PageContext:
    """One page that somebody looks at."""

    service: Service
    what_if: WhatIf
    request: Request

    @property
    def visitor(self) -> Visitor:
        """Who looks."""
        found = self.request.scope["rota.visitor"]
        assert isinstance(found, Visitor)
        return found

    def who(self) -> Principal:
        """Whose rights count, as of now."""
        return self.visitor.principal()

    @property
    def cluster(self) -> Cluster:
        """The cluster as it is now."""
        return self.service.lookout.promised.cluster

    @property
    def promises(self) -> Mapping[str, TenantGuarantee]:
        """What tenants are promised now."""
        return self.service.lookout.promised.now()

    @property
    def recent(self) -> Recent:
        """The last day."""
        return self.service.lookout.recent

    def uses(self) -> dict[str, TenantUse]:
        """What tenants hold now, those that may be seen."""
        return self.service.lookout.uses(self.tenants())

    @property
    def is_admin(self) -> bool:
        """Whether everything is allowed."""
        return self.who().role is AccessRole.ADMIN

    @property
    def may_submit(self) -> bool:
        """Whether jobs of some tenant may be submitted."""
        return self.who().role is not AccessRole.VIEWER

    @property
    def may_study(self) -> bool:
        """Whether all tenants' jobs may be run through the simulator."""
        return self.may_submit and self.who().tenants is None

    def tenants(self) -> tuple[str, ...] | None:
        """The tenants that may be seen; None means all."""
        allowed = self.who().tenants
        return None if allowed is None else tuple(sorted(allowed))

    async def act(self, action: Callable[[Principal, Asker], Awaitable[object]], done: str) -> bool:
        """Do something in the visitor's name; says that it is done, or why not."""
        try:
            who = self.who()
            await action(who, Asker(name=who.name))
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
        """Update the page once it is open, soon after there is news, and now and then, as long as it is looked at."""
        changed = [True]
        last_s = [time.monotonic()]

        def heard(news: Sequence[News]) -> None:
            changed[0] = changed[0] or any(about(each) for each in news)

        async def look() -> None:
            if not self.visitor.is_known():
                ui.navigate.to("/login")
                return
            if changed[0] or time.monotonic() - last_s[0] > every_s:
                changed[0] = False
                await update()
                last_s[0] = time.monotonic()

        context.client.on_delete(self.service.control.listen(heard))
        ui.timer(LOOK_S, look)
