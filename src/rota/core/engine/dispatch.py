"""From what a plan changed to orders for the driver: those who leave first, then those who come."""

from __future__ import annotations

from rota.core.engine.draft import Draft
from rota.core.messages.decisions import Cause, Decision, Move, Renew, Resize, Resume, Start, Stop, Suspend
from rota.core.model.job import JobState
from rota.core.model.placement import Placement, is_suspended_claim, same_devices, suspended_claim
from rota.core.state.job_record import LiveJob
from rota.core.state.phases import Phase
from rota.core.state.state import State


class Dispatch:
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
            self._state.renew(live, lease)
        dropped = self._follow(draft) if draft.touched else []
        for live, lease in draft.leases.items():
            if live.state is JobState.RUNNING and not live.is_leaving:
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
                self._begin(live)

    def _follow(self, draft: Draft) -> list[LiveJob]:
        comers: list[LiveJob] = []
        resized: list[tuple[LiveJob, Placement]] = []
        moved: list[tuple[LiveJob, Placement]] = []
        for live, before in draft.touched.items():
            after = live.placement
            if after is before or after == before:
                continue
            if live.state is JobState.SUSPENDED and live.stopping is None:
                self._rouse(live, before or (), comers, moved)
            elif before is None or live.reserved:
                comers.append(live)
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
            self._shift(resized, moved)
        return self._let_come(comers)

    def _let_come(self, comers: list[LiveJob]) -> list[LiveJob]:
        """Start those whose devices are clear, let the others wait for theirs; who lost its claim contends again."""
        state = self._state
        dropped: list[LiveJob] = []
        for live in comers:
            if live.placement is None:
                state.drop_reservation(live)
                if live.stopping is None:
                    dropped.append(live)
            elif state.is_clear(live):
                self._begin(live)
            elif not live.reserved:
                state.reserve(live)
        return dropped

    def _rouse(
        self, live: LiveJob, before: Placement, comers: list[LiveJob], moved: list[tuple[LiveJob, Placement]]
    ) -> None:
        """A suspended job was given devices, or lost its claim to some, or has to go altogether."""
        after, resting = live.placement, live.suspended_on or ()
        self._state.drop_reservation(live)
        held = before if live.run_milli else suspended_claim(resting)
        if after is None:
            self.stop(live, held, Cause.PREEMPTED)
        elif same_devices(after, resting):
            comers.append(live)
        elif not is_suspended_claim(after):
            moved.append((live, held))

    def _share(self, live: LiveJob, after: Placement, draft: Draft) -> None:
        """Another part of the same devices, at once; with a lease it is in the order that renews it."""
        self._state.share(live)
        if live not in draft.leases and _runs_undisturbed(live):
            self.decisions.append(Resize(live.job.id, after))

    def _shift(self, resized: list[tuple[LiveJob, Placement]], moved: list[tuple[LiveJob, Placement]]) -> None:
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

    def _begin(self, live: LiveJob) -> None:
        """A job's devices are clear: it goes on where it rests, or starts."""
        if live.state is JobState.SUSPENDED:
            self._state.resume(live)
            self.decisions.append(Resume(live.job.id, live.placement or ()))
            return
        self._state.begin(live)
        self.decisions.append(Start(live.job.id, live.placement or (), live.lease))


def _runs_undisturbed(live: LiveJob) -> bool:
    """Whether a job runs and no order for it is outstanding, whatever the draft at hand gives it."""
    return live.phase is Phase.RUNNING or live.phase is Phase.SAVING
