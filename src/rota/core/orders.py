"""From what a plan changed to orders for the driver: those who leave first, then those who come."""

from __future__ import annotations

from rota.core.decisions import Cause, Decision, Renew, Resize, Start, Stop
from rota.core.live import LiveJob
from rota.core.model import JobState
from rota.core.placement import Placement, same_devices
from rota.core.policy import Draft
from rota.core.state import State


class Orders:
    """Writes decisions, and the state's account of them: who was told to start, who to leave, who waits for that."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.decisions: list[Decision] = []
        """What was ordered in the step at hand."""
        self.vacated = False
        """Somebody left devices that another may wait for."""

    def carry_out(self, draft: Draft) -> list[LiveJob]:
        """Order what a draft holds. Returns jobs that lost a reservation and contend again."""
        for live, lease in draft.leases.items():
            live.lease = lease
        dropped = self._follow(draft.touched) if draft.touched else []
        for live, lease in draft.leases.items():
            if live.state is JobState.RUNNING and live.stopping is None:
                self.decisions.append(Renew(live.job.id, live.placement or (), lease))
        return dropped

    def stop(self, live: LiveJob, held: Placement, cause: Cause) -> None:
        """Tell a job to leave what it holds. One that has a new place comes back to it afterwards."""
        self._state.order_stop(live, held, cause)
        self.decisions.append(Stop(live.job.id, cause))
        if live.placement is not None:
            self._state.reserve(live)

    def start_reserved(self) -> None:
        """Start those whose devices have been vacated."""
        self.vacated = False
        for live in list(self._state.reserved.values()):
            if live.stopping is None and self._state.is_clear(live):
                self._start(live)

    def _follow(self, touched: dict[LiveJob, Placement | None]) -> list[LiveJob]:
        state = self._state
        comers: list[LiveJob] = []
        resized: list[tuple[LiveJob, Placement]] = []
        for live, before in touched.items():
            after = live.placement
            if after is before or after == before:
                continue
            if before is None or live.reserved:
                comers.append(live)
            elif after is not None and same_devices(before, after):
                live.settle(state.now_s)
                live.run_milli = live.gpu_milli
            elif after is not None and self._is_resizable(live):
                resized.append((live, before))
            else:
                self.stop(live, before, Cause.PREEMPTED if after is None else Cause.MOVED)
        if resized:
            self._resize(resized)
        dropped: list[LiveJob] = []
        for live in comers:
            if live.placement is None:
                live.reserved = False
                del state.reserved[live.job.id]
                if live.stopping is None:
                    dropped.append(live)
            elif state.is_clear(live):
                self._start(live)
            elif not live.reserved:
                state.reserve(live)
        return dropped

    def _is_resizable(self, live: LiveJob) -> bool:
        return (
            live.job.elastic is not None and live.state is JobState.RUNNING and live.job.id not in self._state.vacating
        )

    def _resize(self, resized: list[tuple[LiveJob, Placement]]) -> None:
        """Change the size of running jobs; one whose new devices are not vacated yet has to stop first."""
        state = self._state
        for live, before in resized:
            state.vacating[live.job.id] = (live, before)
        for live, before in resized:
            if state.is_clear(live):
                self.decisions.append(Resize(live.job.id, live.placement or ()))
            else:
                del state.vacating[live.job.id]
                self.stop(live, before, Cause.MOVED)

    def _start(self, live: LiveJob) -> None:
        self._state.begin(live)
        live.wait_code = None
        self.decisions.append(Start(live.job.id, live.placement or (), live.lease))
