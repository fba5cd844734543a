"""The phase of a job, derived from the rest of its record: for states read from disk, and for the invariants.

Transitions never use it: they enter each phase by name.
"""

from __future__ import annotations

from rota.core.errors import InvariantBroken
from rota.core.model.job import JobState
from rota.core.model.placement import is_suspended_claim
from rota.core.state.job_record import LiveJob
from rota.core.state.phases import Phase
from rota.core.state.state import State

_STOPPING = {
    JobState.STARTING: (Phase.STOPPING_START, Phase.RELOCATING_START),
    JobState.RUNNING: (Phase.STOPPING, Phase.RELOCATING),
    JobState.SUSPENDED: (Phase.STOPPING_SUSPENDED, Phase.RELOCATING_SUSPENDED),
}
"""The phases of a job that is being stopped: without a claim on other devices, and with one."""


def derived_phase(live: LiveJob, state: State, *, saves: bool) -> Phase:
    """The phase that the visible state, outstanding orders and claims of a job add up to.

    `saves` tells whether the job saves its result: nothing else in the record distinguishes that from running.
    """
    is_reserved = live.job.id in state.reserved
    if live.stopping is not None:
        if live.state not in _STOPPING:
            raise InvariantBroken(f"job {live.job.id} is being stopped but is {live.state.value}")
        return _STOPPING[live.state][is_reserved]
    match live.state:
        case JobState.WAITING:
            return Phase.BLOCKED if live.unmet else Phase.RESERVED if is_reserved else Phase.WAITING
        case JobState.RUNNING:
            return _running(live, state, saves=saves)
        case JobState.SUSPENDED:
            return _suspended(live, state, is_reserved=is_reserved)
        case _:
            return Phase[live.state.name]


def _running(live: LiveJob, state: State, *, saves: bool) -> Phase:
    if live.suspended_on is not None:
        return Phase.SUSPENDING
    if live.job.id in state.vacating:
        return Phase.RESIZING
    return Phase.SAVING if saves else Phase.RUNNING


def _suspended(live: LiveJob, state: State, *, is_reserved: bool) -> Phase:
    if is_reserved:
        return Phase.RESUME_RESERVED
    if live.job.id in state.vacating:
        return Phase.MOVING
    keeps_devices = live.placement is not None and not is_suspended_claim(live.placement)
    return Phase.RESUMING if keeps_devices else Phase.SUSPENDED
