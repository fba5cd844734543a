"""The table of a job's life against what the engine really does: every cell once, then random histories."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import on
from core.kernel import Kernel, assign, event_about, job_in, resume, suspend
from rota.core.codec import snapshot
from rota.core.engine.draft import Draft
from rota.core.engine.invariants import check
from rota.core.engine.lifecycle import EVENTS, TRIGGERS, Action, JobEvent, Trigger
from rota.core.errors import InvariantBroken, PlanRefused
from rota.core.messages import events as told
from rota.core.messages.decisions import Lease
from rota.core.model.job import Elastic, JobId, NodeId
from rota.core.model.placement import Placement, packed
from rota.core.state.job_record import LiveJob
from rota.core.state.phases import (
    AFTER_ORDER,
    IN_TRANSITION,
    LEAVING,
    MEANINGS,
    RESERVATIONS,
    STATE_BY_PHASE,
    Order,
    Phase,
)

KINDS: tuple[type[JobEvent], ...] = get_args(JobEvent)
CELLS = [pytest.param(kind, phase, id=f"{kind.__name__}-{phase.name}") for kind in KINDS for phase in Phase]


def test_table_has_a_cell_for_every_event_and_phase() -> None:
    about_jobs = {kind for kind in get_args(told.Event) if "job_id" in kind.__dataclass_fields__}

    assert set(EVENTS) == set(KINDS) == about_jobs
    assert set(TRIGGERS) == set(Trigger)
    assert all(set(row) == set(Phase) for row in (*EVENTS.values(), *TRIGGERS.values()))
    assert set(MEANINGS) == set(Phase)
    assert len(STATE_BY_PHASE) == len(Phase)


def test_every_action_is_in_the_table_and_only_effects_change_the_phase() -> None:
    rows = [*EVENTS.values(), *TRIGGERS.values()]
    used = {cell.action for row in rows for cell in row.values()}

    assert used == set(Action)
    for row in rows:
        for phase, cell in row.items():
            assert cell.action not in (Action.IGNORE, Action.REFUSE) or cell.after == {phase}


def test_a_job_that_has_ended_never_changes() -> None:
    for row in (*EVENTS.values(), *TRIGGERS.values()):
        for phase in (Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED):
            assert row[phase].action in (Action.IGNORE, Action.REFUSE)
    assert not any(phase >= Phase.SUCCEEDED for by_phase in AFTER_ORDER.values() for phase in by_phase)


@pytest.mark.parametrize("phase", Phase, ids=lambda phase: phase.name)
def test_every_phase_can_be_reached_and_is_what_its_record_adds_up_to(phase: Phase) -> None:
    kernel = Kernel()

    live = job_in(phase, kernel)

    assert live.phase is phase
    check(kernel.state)
    assert live.is_leaving == (phase in LEAVING)
    assert live.reserved == (phase in RESERVATIONS) == (live.job.id in kernel.state.reserved)
    assert live.is_in_transition == (phase in IN_TRANSITION)
    assert live.is_settled == (phase in (Phase.RUNNING, Phase.SAVING))
    assert live.is_suspended == (phase is Phase.SUSPENDED)
    assert live.is_contending == (phase in (Phase.WAITING, Phase.RESERVED))


@pytest.mark.parametrize("phase", Phase, ids=lambda phase: phase.name)
def test_a_restart_finds_a_job_in_its_phase_but_for_reservations(phase: Phase) -> None:
    """A reservation is a plan, which the policy makes again after a restart."""
    kernel = Kernel()
    live = job_in(phase, kernel)
    if live.state.is_final:
        kernel.arrive("later", depends_on=(live.job.id,))
    unreserved = AFTER_ORDER[Order.DROP_RESERVATION]

    restored = snapshot.restore(kernel.cluster, snapshot.take(kernel.state))

    check(restored)
    if phase in (Phase.FAILED, Phase.CANCELLED):
        assert not restored.jobs  # `later` was cancelled with it, so that nothing refers to it
    else:
        assert restored.live(live.job.id).phase is unreserved.get(phase, phase)


@pytest.mark.parametrize(("kind", "phase"), CELLS)
def test_event_does_what_the_table_states(kind: type[JobEvent], phase: Phase) -> None:
    kernel = Kernel()
    live = job_in(phase, kernel)

    expect(kernel, live, kind)

    check(kernel.state)


@pytest.mark.parametrize("kind", [told.StartFailed, told.Interrupted])
def test_a_pause_after_a_failure_blocks_a_job_until_it_ends(kind: type[JobEvent]) -> None:
    kernel = Kernel()
    live = job_in(Phase.STARTING, kernel)

    kernel.tell(kind, live, retry_s=10.0)
    phases = [live.phase]
    kernel.state.advance(10.0)
    kernel.transitions.end_pauses()

    assert [*phases, live.phase] == [Phase.BLOCKED, Phase.WAITING]
    assert kernel.transitions.changes.arrived == [live, live]


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.RESIZING, Phase.SUSPENDING], ids=lambda phase: phase.name)
def test_time_limit_stops_a_job_whatever_is_ordered_for_it(phase: Phase) -> None:
    kernel = Kernel()
    live = job_in(phase, kernel)

    kernel.transitions._fire(Trigger.TIME_LIMIT_REACHED, live)
    phases = [live.phase]
    kernel.tell(told.Stopped, live)

    assert [*phases, live.phase] == [Phase.STOPPING, Phase.FAILED]


@pytest.mark.parametrize("phase", Phase, ids=lambda phase: phase.name)
@pytest.mark.parametrize("trigger", Trigger, ids=lambda trigger: trigger.name)
def test_trigger_does_what_the_table_states(trigger: Trigger, phase: Phase) -> None:
    kernel = Kernel()
    live = job_in(phase, kernel)
    cell = TRIGGERS[trigger][phase]
    if cell.action in (Action.COUNT_DEPENDENCY, Action.END_PAUSE) and not live.unmet:
        live.unmet = 1
    before = snapshot.take(kernel.state)

    if cell.action is Action.REFUSE:
        with pytest.raises(InvariantBroken, match=f"job j: {trigger.value} is not expected while it is {phase.label}"):
            kernel.transitions._fire(trigger, live)
    else:
        kernel.transitions._fire(trigger, live)

    assert live.phase in cell.after
    if cell.action in (Action.REFUSE, Action.IGNORE):
        assert snapshot.take(kernel.state) == before


# -- random histories ----------------------------------------------------------------------------

ANSWERS = (told.Started, told.Stopped, told.Moved, told.Resized, told.Suspended, told.Resumed, told.JobReleased)
"""Events with which orders and holds end."""
STEPS = st.lists(
    st.tuples(
        st.integers(0, 3), st.sampled_from("aaaapppppxt"), st.integers(0, 31), st.sampled_from([0.0, 0.0, 1.0, 7.0])
    ),
    min_size=40,
    max_size=60,
)
"""A job, what is done (an answer that is due, a plan, any event, time), a choice, and the seconds before it."""
AFTER_PLAN: dict[Phase, set[Phase]] = {phase: {phase} for phase in Phase}
"""Phases that the orders of one plan can lead to: a reservation dropped, a resize tried, a stop, a reservation."""
for _ in range(4):
    for _reached in AFTER_PLAN.values():
        _reached |= {by[phase] for phase in list(_reached) for by in AFTER_ORDER.values() if phase in by}


@pytest.mark.slow
@settings(max_examples=150)
@given(steps=STEPS)
def test_random_histories_stay_within_the_table(steps: list[tuple[int, str, int, float]]) -> None:
    kernel = Kernel()
    jobs = [
        kernel.arrive("a", work=500.0, time_limit_s=20.0),
        kernel.arrive("b", workers=2, elastic=Elastic(min_tasks=1, max_tasks=2), max_restarts=1),
        kernel.arrive("c", depends_on=(JobId("a"),), exclusive=True),
        kernel.arrive("d", gpus=2, held=True),
    ]
    for live, placement in zip(jobs, (on("n1", 1), on("n2", 1)), strict=False):
        kernel.plan(assign(live, placement))
        kernel.tell(told.Started, live)
    for number, what, choice, seconds in steps:
        live = jobs[number]
        kernel.state.advance(kernel.state.now_s + seconds)
        due = [kind for kind in ANSWERS if EVENTS[kind][live.phase].action not in (Action.IGNORE, Action.REFUSE)]
        if what == "a" and due:
            expect(kernel, live, due[choice % len(due)])
        elif what == "p":
            expect_plan(kernel, jobs, live, choice // 4, choice % 4)
        elif what == "t":
            expect_time_and_nodes(kernel, jobs, NodeId(f"n{1 + choice % 2}"), is_lost=choice > 15)
        else:
            expect(kernel, live, KINDS[choice % len(KINDS)], retry_s=kernel.state.now_s + 5.0 if seconds else None)
        check(kernel.state)


def expect(kernel: Kernel, live: LiveJob, kind: type[JobEvent], *, retry_s: float | None = None) -> None:
    """Apply an event: the job goes where the table states, others where triggers lead; one refused changes nothing."""
    cell = EVENTS[kind][live.phase]
    phases = {other: other.phase for other in kernel.state.jobs.values()}
    before = snapshot.take(kernel.state)
    event = event_about(kind, live, kernel.state.now_s, retry_s=retry_s)
    if cell.action is Action.REFUSE:
        refusal = f"job {live.job.id}: {kind.__name__} is not expected while it is {live.phase.label}"
        with pytest.raises(InvariantBroken, match=refusal):
            kernel.take(event)
    else:
        kernel.take(event)
    assert live.phase in cell.after, (kind, phases[live], live.phase)
    if cell.action in (Action.REFUSE, Action.IGNORE):
        assert snapshot.take(kernel.state) == before
    for other, phase in phases.items():
        if other is not live and other.phase is not phase:
            assert any(other.phase in TRIGGERS[trigger][phase].after for trigger in Trigger)


def expect_plan(kernel: Kernel, jobs: list[LiveJob], live: LiveJob, act: int, where: int) -> None:
    """Carry out a plan of one or two acts, if the draft accepts them: phases change only as orders state."""
    phases = [each.phase for each in jobs]
    draft = kernel.draft()
    try:
        _act(draft, jobs, live, act, where)
    except PlanRefused:
        draft.undo(0)
    kernel.dispatch.carry_out(draft)
    for each, phase in zip(jobs, phases, strict=True):
        assert each.phase in AFTER_PLAN[phase], (act, phase, each.phase)


def _act(draft: Draft, jobs: list[LiveJob], live: LiveJob, act: int, where: int) -> None:
    """What plans do: place, release, restart elsewhere, move, suspend, resume, share, and place over another job."""
    there = _somewhere(live, where)
    if act in (1, 2, 7) and live.placement is not None:
        draft.release(live)
    if act == 7:
        victim = jobs[where]
        if victim is not live and victim.placement is not None:
            there = victim.placement if len(victim.placement) == len(there) else there
            draft.release(victim)
    match act:
        case 0 | 2 | 7:
            draft.assign(live, there)
        case 3 if live.placement is not None:
            draft.move(live, there)
        case 4:
            draft.suspend(live)
        case 5:
            draft.resume(live)
        case 6 if live.is_settled and live.job.gpus == 1 and not live.job.exclusive and live.job.elastic is None:
            draft.share(live, packed(live.placement or (), 500 if where else 1000))
        case _:
            pass


def _somewhere(live: LiveJob, where: int) -> Placement:
    """One of four placements for a job."""
    name = f"n{1 + where % 2}"
    if live.job.elastic is not None and where > 1:
        return on(name, 2, tasks=2)
    return on(name, 2 if live.job.gpus == 2 and live.job.elastic is None else [where // 2])


def expect_time_and_nodes(kernel: Kernel, jobs: list[LiveJob], node_id: NodeId, *, is_lost: bool) -> None:
    """A node is lost and comes back, and what is due is done: phases change only as triggers and orders state."""
    phases = [each.phase for each in jobs]
    if is_lost:
        kernel.take(told.NodeLost(node_id))
        kernel.take(told.NodeBack(node_id))
    else:
        kernel.transitions.enforce_limits()
        kernel.transitions.end_pauses()
        kernel.dispatch.start_reserved()
    for each, phase in zip(jobs, phases, strict=True):
        triggered = {phase}.union(*(TRIGGERS[trigger][phase].after for trigger in Trigger))
        assert any(each.phase in AFTER_PLAN[reached] for reached in triggered), (phase, each.phase)


# -- what the table does not tell ----------------------------------------------------------------


def test_a_move_frees_devices_for_others() -> None:
    kernel = Kernel()
    live = job_in(Phase.RESIZING, kernel)
    kernel.transitions.changes.freed = False

    kernel.tell(told.Moved, live)

    assert kernel.transitions.changes.freed


def test_a_lease_is_not_renewed_for_a_job_that_is_leaving() -> None:
    kernel = Kernel()
    live = job_in(Phase.RELOCATING, kernel)
    kernel.dispatch.decisions.clear()

    kernel.plan(lambda draft: draft.lease(live, Lease(work=10.0, until_s=5.0)))

    assert kernel.dispatch.decisions == []
    assert live.lease == Lease(work=10.0, until_s=5.0)


def test_time_in_suspension_does_not_count_against_the_time_limit() -> None:
    kernel = Kernel()
    live = kernel.arrive("j", time_limit_s=20.0)
    kernel.plan(assign(live, on("n1", 1)))
    kernel.tell(told.Started, live)
    kernel.state.advance(5.0)
    kernel.plan(suspend(live))
    kernel.tell(told.Suspended, live)
    kernel.state.advance(15.0)
    kernel.plan(resume(live))
    kernel.tell(told.Resumed, live)
    phases = []
    for at_s in (20.0, 29.9, 30.0):
        kernel.state.advance(at_s)
        kernel.transitions.enforce_limits()
        phases.append(live.phase)

    assert phases == [Phase.RUNNING, Phase.RUNNING, Phase.STOPPING]
