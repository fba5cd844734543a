"""What can be done to jobs and nodes from a page: asked about first, and allowed by the same rules as in the API."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from rota.api.access import Principal
from rota.core.model.job import JobId, NodeId
from rota.live.loop.requests import Asker
from rota.web.desk import PageContext
from rota.web.parts.basics import confirm

_JOB_ACTIONS = {
    "cancel": ("Cancel", "Its tasks are told to stop. It can't be resumed, only cloned.", "is being cancelled"),
    "hold": ("Hold", "It will not start until it is released.", "is held"),
    "release": ("Release", "It may start from now on.", "may start"),
}


async def act_on_job(desk: PageContext, row: Any, action: str) -> bool:
    """Cancel, hold or release a job, if that is confirmed."""
    verb, consequence, done = _JOB_ACTIONS[action]
    if not await confirm(f"{verb} {row.name}?", consequence, f"{verb} job {row.id}", grave=action == "cancel"):
        return False

    def carry_out(who: Principal, asker: Asker) -> Awaitable[None]:
        who.must_change(row.tenant)
        requests = desk.service.requests
        deeds = {"cancel": requests.cancel, "hold": requests.hold, "release": requests.release}
        return deeds[action](JobId(row.id), asker)

    return await desk.act(carry_out, f"Job {row.id} {done}")


async def drain(desk: PageContext, node_id: str, *, drained: bool) -> bool:
    """Drain or undrain a node, if that is confirmed."""
    verb = "Drain" if drained else "Undrain"
    consequence = (
        "Nothing new starts there. What runs there goes on to its end."
        if drained
        else "It takes jobs again from now on."
    )
    if not await confirm(f"{verb} {node_id}?", consequence, f"{verb} {node_id}", grave=drained):
        return False

    def carry_out(who: Principal, asker: Asker) -> Awaitable[None]:
        who.must_be_admin()
        return desk.service.requests.drain(NodeId(node_id), asker, drained=drained)

    return await desk.act(carry_out, f"{node_id} is {'drained' if drained else 'in use again'}")
