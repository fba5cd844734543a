"""Actions on jobs and nodes: confirmed by the user, then authorised by the same rules as in the API."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from rota.api.access import Principal
from rota.core.model.job import JobId, NodeId
from rota.live.intake.audit_entry import Asker
from rota.web.page_context import PageContext
from rota.web.parts.basics import confirm

_JOB_ACTIONS = {
    "cancel": (
        "Cancel",
        "Its tasks will be stopped. A cancelled job can't be resumed, only cloned.",
        "is being cancelled",
    ),
    "hold": ("Hold", "The job will not start until it is released.", "held"),
    "release": ("Release", "The job becomes eligible to start.", "released"),
}


async def act_on_job(context: PageContext, row: Any, action: str) -> bool:
    """Cancel, hold or release a job once the user confirms; return whether it was done."""
    verb, consequence, done = _JOB_ACTIONS[action]
    if not await confirm(f"{verb} {row.name}?", consequence, f"{verb} job {row.id}", grave=action == "cancel"):
        return False

    def carry_out(principal: Principal, asker: Asker) -> Awaitable[None]:
        principal.must_act_on(row.tenant, row.owner, row.id)
        requests = context.service.requests
        handlers = {"cancel": requests.cancel, "hold": requests.hold, "release": requests.release}
        return handlers[action](JobId(row.id), asker)

    return await context.act(carry_out, f"Job {row.id} {done}")


async def drain(context: PageContext, node_id: str, *, drained: bool) -> bool:
    """Drain or undrain a node once the user confirms; return whether it was done."""
    verb = "Drain" if drained else "Undrain"
    consequence = (
        "No new jobs will start on this node. Running jobs continue until they end."
        if drained
        else "The node will accept jobs again."
    )
    if not await confirm(f"{verb} {node_id}?", consequence, f"{verb} {node_id}", grave=drained):
        return False

    def carry_out(principal: Principal, asker: Asker) -> Awaitable[None]:
        principal.must_be_admin()
        return context.service.requests.drain(NodeId(node_id), asker, drained=drained)

    return await context.act(carry_out, f"{node_id} is {'drained' if drained else 'accepting jobs again'}")
