"""What keeps a gang from its devices, as the reason that a waiting job gives."""

from __future__ import annotations

from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import OPPORTUNISTIC, WHOLE, DeviceType
from rota.tenancy.cells.build import Forest
from rota.tenancy.cells.schedule import GangRequest, Obstacle, Refusal

_OWN = {
    Obstacle.QUOTA: ReasonCode.QUOTA_USED,
    Obstacle.SHAPE: ReasonCode.CELLS_SCATTERED,
    Obstacle.BAD: ReasonCode.BAD_HARDWARE,
    Obstacle.NOT_SUGGESTED: ReasonCode.NO_MATCHING_NODE,
}
_ANYWHERE = {
    Obstacle.BUSY: ReasonCode.DEVICES_BUSY,
    Obstacle.SHAPE: ReasonCode.FRAGMENTED,
    Obstacle.BAD: ReasonCode.BAD_HARDWARE,
    Obstacle.NOT_SUGGESTED: ReasonCode.NO_MATCHING_NODE,
}


def reason_for(refusal: Refusal, request: GangRequest, forest: Forest) -> Reason:
    """Why a gang waits: for its tenant's own cells, or without a guarantee for any."""
    need, room, owned = refusal.need * WHOLE, refusal.room * WHOLE, refusal.owned * WHOLE
    if request.priority == OPPORTUNISTIC:
        return _anywhere(refusal, request, forest)
    code = _OWN[refusal.obstacle]
    if code is ReasonCode.QUOTA_USED and owned < need:
        code = ReasonCode.QUOTA_TOO_SMALL
    return Reason(code=code, need_milli=need, free_milli=room, owned_milli=owned, tenant=request.tenant)


def _anywhere(refusal: Refusal, request: GangRequest, forest: Forest) -> Reason:
    need, room, owned = refusal.need * WHOLE, refusal.room * WHOLE, refusal.owned * WHOLE
    types = {chain.leaf_type for chain in forest.chains.values()}
    if request.leaf_types and not types.intersection(request.leaf_types):
        return Reason(code=ReasonCode.NO_SUCH_TYPE, need_milli=need, device_type=DeviceType(request.leaf_types[0]))
    largest = max(
        node.leaves
        for chain in forest.chains.values()
        if not request.leaf_types or chain.leaf_type in request.leaf_types
        for node in chain.nodes
    )
    if request.sizes[-1] > largest:
        return Reason(code=ReasonCode.NEVER_FITS, need_milli=need, owned_milli=largest * WHOLE)
    if owned < need:
        return Reason(code=ReasonCode.NEVER_FITS, need_milli=need)
    return Reason(code=_ANYWHERE[refusal.obstacle], need_milli=need, free_milli=room, owned_milli=owned)
