"""The invariants: recount everything from the jobs alone and compare it with what the state keeps.

Slow on purpose and independent of the code that it checks. Tests run it after every step.
"""

from __future__ import annotations

from rota.core.engine.device_invariants import check_devices
from rota.core.errors import InvariantBroken
from rota.core.messages.decisions import Cause
from rota.core.model.job import WHOLE, JobId, JobState
from rota.core.model.placement import (
    Placement,
    fault_in,
    held_milli,
    is_suspended_claim,
    same_devices,
    suspended_claim,
)
from rota.core.state.derived_phase import derived_phase
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.phases import STATE_BY_PHASE, Phase
from rota.core.state.state import State

_ON_DEVICES = frozenset({JobState.STARTING, JobState.RUNNING})
_SLACK = 1e-6
"""The relative error that sums of floats may have."""


def check(state: State) -> None:
    """Raise `InvariantBroken`, naming what is wrong, unless the state agrees with itself."""
    for name, live in state.jobs.items():
        if live.job.id != name:
            raise InvariantBroken(f"job {name}: it is filed under another name than its own, {live.job.id}")
        _check_standing(live, state)
        _check_counters(live, state)
        is_without = live.suspended_on is not None or live.phase is Phase.SAVING
        if live.placement is not None and not (is_without and is_suspended_claim(live.placement)):
            _check_claim(live, live.placement, state.inventory)
    _check_sequence(state)
    _check_dependencies(state)
    _check_turns(state)
    _check_registers(state)
    for live in state.jobs.values():
        _check_phase(live, state)
    check_devices(state)


def _check_standing(live: LiveJob, state: State) -> None:
    """What a job may claim and hold in each state."""
    holds, stopping = live.placement is not None, live.stopping
    _must((live.run_since_s is not None) == (live.state is JobState.RUNNING), live, "its clock is wrong")
    _must(live.reserved == (live.job.id in state.reserved), live, "its reservation is not registered")
    _must(holds or not live.reserved, live, "it has a reservation of nothing")
    _must(stopping is None or live.job.id in state.vacating, live, "it is being stopped but vacates nothing")
    if live.suspended_on is not None:
        _check_suspended_at(live, live.suspended_on, state)
    if live.phase is Phase.SAVING:
        _must(not holds or is_suspended_claim(live.placement or ()), live, "it saves on devices")
    if live.state is JobState.SUSPENDED:
        _must(live.suspended_on is not None, live, "it is suspended nowhere")
        _must(holds or stopping is not None, live, "it keeps no host resources")
    elif live.state in _ON_DEVICES:
        if stopping is None:
            _must(holds and not live.reserved, live, "it holds nothing")
            as_claimed = live.run_milli == live.gpu_milli or live.job.id in state.vacating
            _must(as_claimed, live, f"it runs on {live.run_milli} thousandths, not on what it claims")
        else:
            _must(holds == live.reserved, live, "it is being stopped and still claims devices")
            _must(not holds or stopping is Cause.MOVED, live, "it claims devices that it will not return to")
    else:
        _must(stopping is None, live, "it is being stopped but runs nowhere")
        _must(holds == live.reserved, live, "it claims devices without a reservation")
        _must(live.state is JobState.WAITING or not holds, live, "it claims devices")
    _must(live.lease is None or holds or stopping is not None, live, "it has a lease of nothing")
    _must((live.ended_s is not None) == live.state.is_final, live, "its end does not fit its state")


def _check_phase(live: LiveJob, state: State) -> None:
    """A job's phase is what the rest of its record adds up to, and the state that users see is that of the phase."""
    expected = derived_phase(live, state, saves=live.phase is Phase.SAVING)
    _must(live.phase is expected, live, f"its record is that of a job which is {expected.label}")
    _must(live.state is STATE_BY_PHASE[live.phase], live, "its state is not that of its phase")


def _check_suspended_at(live: LiveJob, former: Placement, state: State) -> None:
    """A suspended job keeps its host resources, or has its devices again; one that is being suspended vacates them."""
    _must(live.state in (JobState.SUSPENDED, JobState.RUNNING), live, "it has a suspended claim and is not suspended")
    if live.state is JobState.RUNNING:
        _must(live.job.id in state.vacating, live, "it is being suspended and vacates nothing")
    if live.stopping is None and live.placement is not None:
        is_back = same_devices(live.placement, former) and live.state is JobState.SUSPENDED
        is_moved = live.job.id in state.vacating and not is_suspended_claim(live.placement)
        _must(
            is_back or is_moved or live.placement == suspended_claim(former),
            live,
            "it claims other devices than its own",
        )
    _must(
        live.placement is None or not live.reserved or not is_suspended_claim(live.placement),
        live,
        "it waits for nothing",
    )


def _check_counters(live: LiveJob, state: State) -> None:
    """Amounts that can only grow, and never beyond what there is."""
    now_s, total = state.now_s, live.job.work
    done = live.work_done(now_s)
    _must(done >= 0, live, f"it has done {done} of its work")
    _must(total is None or done <= total + _SLACK * max(total, 1.0), live, f"it has done {done} of {total}")
    _must(live.ran_s >= 0 and live.attained_milli_s >= 0, live, "it has run for a negative time")
    alive_s = (now_s if live.ended_s is None else live.ended_s) - live.submitted_s
    slack_s = _SLACK * max(alive_s, 1.0)
    _must(live.run_s(now_s) <= alive_s + slack_s, live, "it has run for longer than it has lived")
    _must(live.first_start_s is not None or live.ran_s == 0, live, "it ran without ever starting")
    for earlier, later in ((live.submitted_s, live.first_start_s), (live.first_start_s, live.ended_s)):
        _must(earlier is None or later is None or earlier <= later, live, "its times are out of order")
    expected = live.job.gpu_milli if live.placement is None else held_milli(live.placement)
    _must(live.gpu_milli == expected, live, f"it counts {live.gpu_milli} thousandths, not {expected}")


def _check_claim(live: LiveJob, placement: Placement, inventory: Inventory) -> None:
    """A gang is whole, on types that it may use, and a reservation only on nodes that work.

    Only tasks of a single role that have whole devices may be on several types at once.
    """
    fault = fault_in(placement, live.job)
    _must(fault is None, live, fault or "")
    type_by_role: dict[int, str] = {}
    for slot in placement:
        role, account = live.job.roles[slot.role], inventory.nodes[slot.node]
        kind, memory = account.node.device_type, account.node.device_memory_bytes
        if role.device_types:
            _must(kind in role.device_types, live, f"a task of role {role.name!r} is on type {kind!r}")
        is_mixed = type_by_role.setdefault(slot.role, kind) != kind
        may_mix = len(live.job.roles) == 1 and role.device_milli >= WHOLE
        _must(may_mix or not is_mixed, live, f"role {role.name!r} is on two types")
        if memory is not None and slot.devices:
            _must(role.device_memory_bytes <= memory, live, "a device has less memory than a task needs")
        if live.reserved and live.state is not JobState.SUSPENDED:
            _must(
                account.up and not account.drained,
                live,
                f"its reservation is on node {account.node.id}, out of use",
            )


def _check_sequence(state: State) -> None:
    numbers = [live.seq for live in state.jobs.values()]
    if len(set(numbers)) < len(numbers) or any(number >= state.seq for number in numbers):
        raise InvariantBroken(f"jobs' sequence numbers are not unique below {state.seq}: {sorted(numbers)}")


def _check_dependencies(state: State) -> None:
    for live in state.jobs.values():
        unmet = [d for d in live.job.depends_on if state.jobs[d].state is not JobState.SUCCEEDED]
        if live.state.is_final:
            continue
        retries, awaits_turn = live.retry_s is not None, state.turns.is_waiting(live)
        _must(
            live.unmet == len(unmet) + retries + awaits_turn,
            live,
            f"it counts {live.unmet} unmet dependencies, not {len(unmet)}",
        )
        for needed in unmet:
            _must(not state.jobs[needed].state.is_final, live, f"job {needed}, which it needs, never succeeds")
            _must(
                any(waiting is live for waiting in state.dependents.get(needed, ())),
                live,
                f"job {needed} does not know that it waits for it",
            )
        _must(not unmet or live.state in (JobState.HELD, JobState.WAITING), live, "it did not wait")
        _must(not unmet or live.placement is None, live, "it claims devices before its dependencies are met")


def _check_turns(state: State) -> None:
    """Of an array with a limit at most so many jobs contend or run, and no job waits while a turn is free."""
    taken: dict[JobId, int] = {}
    for live in state.jobs.values():
        array, limit = live.job.array, live.job.array_limit
        if array is None or limit is None:
            _must(not live.has_turn, live, "it has a turn, which it does not need")
            continue
        without = live.state.is_final or live.state is JobState.HELD or live.phase is Phase.BLOCKED
        _must(live.has_turn or without, live, "it has no turn in its array")
        _must(not live.has_turn or not without or live.retry_s is not None, live, "it keeps a turn for nothing")
        taken[array] = taken.get(array, 0) + live.has_turn
        if state.turns.is_waiting(live):
            _must(not live.has_turn and live.phase is Phase.BLOCKED, live, "it waits for a turn needlessly")
            _must(state.turns.taken(array) >= limit, live, "it waits for a turn, and one is free")
    for live in state.jobs.values():
        if live.job.array is not None and live.job.array_limit is not None:
            count = taken[live.job.array]
            _must(count <= live.job.array_limit, live, f"{count} jobs of its array have turns")
            _must(count == state.turns.taken(live.job.array), live, "the turns of its array are miscounted")


def _check_registers(state: State) -> None:
    for name, live in state.reserved.items():
        _must(state.jobs.get(name) is live, live, "the reservation is of a job that is not known")
    for name, (live, held) in state.vacating.items():
        _must(state.jobs.get(name) is live, live, "what is vacated belongs to a job that is not known")
        _must(live.state in (*_ON_DEVICES, JobState.SUSPENDED), live, "it vacates devices but is on none")
        _must(bool(held), live, "it vacates nothing")
        _must(live.stopping is not None or live.placement != held, live, "it vacates for no reason")


def _must(holds: bool, live: LiveJob, fault: str) -> None:
    if not holds:
        raise InvariantBroken(
            f"job {live.job.id} ({live.phase.label}, stopping {live.stopping}, placement {live.placement}): {fault}"
        )
