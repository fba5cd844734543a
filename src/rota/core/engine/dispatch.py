"""From what a plan changed to orders for the driver: stops first, then starts."""

from __future__ import annotations

from rota.core.engine.draft import Draft
from rota.core.messages.decisions import Cause, Decision, Move, Renew, Resize, Resume, Start, Stop, Suspend
from rota.core.model.job import JobState
from rota.core.model.placement import Placement, is_suspended_claim, same_devices, suspended_claim
from rota.core.state.job_record import LiveJob
from rota.core.state.phases import Phase
from rota.core.state.state import State


class Dispatch:
    """Writes decisions, and records in the state which jobs start, which leave and which wait for devices."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.decisions: list[Decision] = []
        """Decisions of the current step."""
        self.vacated = False
        """Whether devices were vacated that a reserved job may wait for."""

    def carry_out(self, draft: Draft) -> list[LiveJob]:
        """Order what a draft holds. Return jobs that lost a reservation and contend again."""
        for live, lease in draft.leases.items():
            self._state.renew(live, lease)
        dropped = self._follow(draft) if draft.touched else []
        for live, lease in draft.leases.items():
            if live.state is JobState.RUNNING and not live.is_leaving:
                self.decisions.append(Renew(live.job.id, live.placement or (), lease))
        return dropped

    def stop(self, live: LiveJob, held: Placement, cause: Cause) -> None:
        """Order a job to leave what it holds. One that claims other devices starts there afterwards."""
        self._state.order_stop(live, held, cause)
        self.decisions.append(Stop(live.job.id, cause))
        if live.placement is not None:
            self._state.reserve(live)

    def start_reserved(self) -> None:
        """Start reserved jobs whose devices have been vacated."""
        self.vacated = False
        for live in list(self._state.reserved.values()):
            if live.stopping is None and self._state.is_clear(live):
                self._start(live)

    def _follow(self, draft: Draft) -> list[LiveJob]:
        starting: list[LiveJob] = []
        resized: list[tuple[LiveJob, Placement]] = []
        moved: list[tuple[LiveJob, Placement]] = []
        for live, before in draft.touched.items():
            after = live.placement
            if after is before or after == before:
                continue
            if live.state is JobState.SUSPENDED and live.stopping is None:
                self._wake_suspended(live, before or (), starting, moved)
            elif before is None or live.reserved:
                starting.append(live)
            elif after is not None and same_devices(before, after):
                self._share(live, after, draft)
            elif after is not None and is_suspended_claim(after) and not is_suspended_claim(before):
                self._state.order_suspend(live, before)
                self.decisions.append(Suspend(live.job.id))
            elif after is not None and live in draft.moves and _runs_undisturbed(live):
                moved.append((live, before))
            elif after is not None and live.job.elastic is not None and _runs_undisturbed(live):
                resized.append((live, before))
            else:
                self.stop(live, before, Cause.PREEMPTED if after is None else Cause.MOVED)
        if resized or moved:
            self._resize_or_move(resized, moved)
        return self._start_or_reserve(starting)

    def _start_or_reserve(self, starting: list[LiveJob]) -> list[LiveJob]:
        """Start jobs whose devices are vacated and reserve for the others. Return those that lost their claim."""
        state = self._state
        dropped: list[LiveJob] = []
        for live in starting:
            if live.placement is None:
                state.drop_reservation(live)
                if live.stopping is None:
                    dropped.append(live)
            elif state.is_clear(live):
                self._start(live)
            elif not live.reserved:
                state.reserve(live)
        return dropped

    def _wake_suspended(
        self, live: LiveJob, before: Placement, starting: list[LiveJob], moved: list[tuple[LiveJob, Placement]]
    ) -> None:
        """Handle a suspended job that was given devices, lost its claim to some, or has to be stopped."""
        after, former = live.placement, live.suspended_on or ()
        self._state.drop_reservation(live)
        held = before if live.run_milli else suspended_claim(former)
        if after is None:
            self.stop(live, held, Cause.PREEMPTED)
        elif same_devices(after, former):
            starting.append(live)
        elif not is_suspended_claim(after):
            moved.append((live, held))

    def _share(self, live: LiveJob, after: Placement, draft: Draft) -> None:
        """Change the fraction that a job holds of its devices, at once; a job with a lease gets it with the renewal."""
        self._state.share(live)
        if live not in draft.leases and _runs_undisturbed(live):
            self.decisions.append(Resize(live.job.id, after))

    def _resize_or_move(self, resized: list[tuple[LiveJob, Placement]], moved: list[tuple[LiveJob, Placement]]) -> None:
        """Let jobs continue on other devices; stop those first whose new devices are not vacated yet."""
        state = self._state
        for live, before in (*resized, *moved):
            state.order_resize(live, before)
        for number, (live, before) in enumerate((*resized, *moved)):
            if state.is_clear(live):
                kind = Resize if number < len(resized) else Move
                self.decisions.append(kind(live.job.id, live.placement or ()))
            else:
                state.withdraw_resize(live)
                self.stop(live, before, Cause.MOVED)

    def _start(self, live: LiveJob) -> None:
        """Start a job whose devices are vacated, or resume it where it is suspended."""
        if live.state is JobState.SUSPENDED:
            self._state.resume(live)
            self.decisions.append(Resume(live.job.id, live.placement or ()))
            return
        self._state.begin(live)
        self.decisions.append(Start(live.job.id, live.placement or (), live.lease))


def _runs_undisturbed(live: LiveJob) -> bool:
    """Whether a job runs and no order for it is outstanding, whatever the draft at hand gives it."""
    return live.phase is Phase.RUNNING or live.phase is Phase.SAVING
