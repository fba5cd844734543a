"""Placement of the selected jobs: in order, with as few moves as the order allows."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from rota.core.engine.draft import Draft
from rota.core.messages.reasons import Reason
from rota.core.model.placement import Placement
from rota.core.state.job_record import LiveJob
from rota.mechanisms.constrained_job import narrowed, on_node
from rota.mechanisms.selection.rule import DeviceRequest


class RequestPlacement:
    """Serves requests in order. A job keeps its devices unless a request before it in the order needs them."""

    def __init__(
        self,
        draft: Draft,
        requests: list[DeviceRequest],
        before: Mapping[LiveJob, Placement],
        passed: dict[LiveJob, Reason],
    ) -> None:
        self._draft = draft
        self._requests = requests
        self._before = before
        self._passed = passed
        self._failed: set[Hashable] = set()
        self._kept_jobs: list[LiveJob] = []
        """Jobs that were given their old devices back, last in the order first."""

    def run(self) -> None:
        """Give old devices back where possible, then serve the requests in order."""
        draft = self._draft
        for request in self._requests:
            if self._keep_devices(request):
                self._kept_jobs.insert(0, request.live)
        for request in self._requests:
            if self._kept_jobs and self._kept_jobs[-1] is request.live:
                self._kept_jobs.pop()
            if request.live.placement is None and not self._keep_devices(request) and not self._has_failed(request):
                placement = self._find(request)
                if isinstance(placement, Reason):
                    self._failed.add(self._request_key(request))
                    if request.live not in self._passed:
                        draft.because(request.live, placement)
                else:
                    draft.assign_offered(request.live, placement)
                    self._passed.pop(request.live, None)

    def _keep_devices(self, request: DeviceRequest) -> bool:
        """Assign the devices that the job held, if they meet the request and are still free."""
        held = self._before.get(request.live)
        if held is None or request.live.placement is not None:
            return False
        job, inventory = request.live.job, self._draft.inventory
        if request.kind is not None and inventory.nodes[held[0].node].node.device_type != request.kind:
            return False
        if request.node is not None and any(slot.node != request.node for slot in held):
            return False
        if not inventory.is_free(held, job.roles, job.exclusive, back=True):
            return False
        self._draft.assign_offered(request.live, held)
        return True

    def _request_key(self, request: DeviceRequest) -> Hashable:
        allocator, now_s = self._draft.allocator, self._draft.now_s
        return (
            allocator.equivalence_key(request.live),
            allocator.stage(request.live, now_s)[0],
            request.kind,
            request.node,
        )

    def _has_failed(self, request: DeviceRequest) -> bool:
        """Whether an equivalent request failed before in this plan, when more was free."""
        return request.live.wait_code is not None and self._request_key(request) in self._failed

    def _find(self, request: DeviceRequest) -> Placement | Reason:
        """Free devices, or those of kept jobs later in the order, the last first."""
        draft = self._draft
        found = reason = self._offer(request)
        if not isinstance(found, Reason) or not self._kept_jobs:
            return found
        mark = draft.mark()
        for gone, later in enumerate(self._kept_jobs, start=1):
            draft.release(later)
            found = self._offer(request)
            if not isinstance(found, Reason):
                del self._kept_jobs[:gone]
                return found
        draft.undo(mark)
        return reason

    def _offer(self, request: DeviceRequest) -> Placement | Reason:
        draft, live = self._draft, request.live
        if request.node is not None:
            placement = on_node(draft.inventory, live.job, request.node)
            if placement is not None:
                return placement
        return draft.offer(live if request.kind is None else narrowed(live, request.kind))
