"""Leases: a job goes on for so long, waits on its devices, and goes on again without being moved."""

from __future__ import annotations

import pytest

from builders import Script, World, on
from rota.core.codec.values import decode_decision, encode_decision
from rota.core.engine.draft import Draft
from rota.core.errors import PlanRefused
from rota.core.messages.decisions import Decision, Lease, Renew, Start
from rota.core.messages.events import Lapsed, SpeedChanged
from rota.core.model.job import JobId

A = JobId("a")


def leased(world: World, script: Script, lease: Lease) -> list[Decision]:
    live = world.live("a")

    def give(draft: Draft) -> None:
        if live.placement is None:
            draft.assign(live, on("n1", 2))
        draft.lease(live, lease)

    script.todo, script.wakeup_s = [give], world.now_s
    return world.timer()


def test_lease_goes_out_with_the_start_and_is_renewed_in_place() -> None:
    script = Script()
    world = World(gpus=2, policy=script)
    world.submit("a", gpus=2, work=100.0)
    first, second = Lease(30.0, 30.0), Lease(60.0, 70.0)

    assert leased(world, script, first) == [Start(A, on("n1", 2), first)]
    world.started("a")
    world.pass_s(30.0)
    script.wakeup_s = float("inf")
    world.step(Lapsed(A, 30.0))
    assert script.heard[-1].lapsed == [world.live("a")]
    world.pass_s(10.0)
    assert world.live("a").work_done(world.now_s) == 30.0
    assert leased(world, script, second) == [Renew(A, on("n1", 2), second)]
    world.step(SpeedChanged(A, 30.0, 1.0))
    world.pass_s(5.0)
    assert world.live("a").work_done(world.now_s) == 35.0
    assert world.live("a").preemptions == 0


def test_lease_of_nothing_is_refused() -> None:
    script = Script()
    world = World(gpus=2, policy=script)
    world.submit("a", gpus=2)
    script.todo, script.wakeup_s = [lambda draft: draft.lease(world.live("a"), Lease(1.0, 1.0))], 0.0

    with pytest.raises(PlanRefused, match="holds nothing"):
        world.timer()


@pytest.mark.parametrize(
    "decision",
    [Start(A, on("n1", 2), Lease(3.0, 4.5)), Renew(A, on("n1", 1), Lease(3.0, 4.5, together=True)), Start(A, ())],
    ids=["start", "renew", "plain"],
)
def test_leases_survive_the_journal(decision: Decision) -> None:
    assert decode_decision(encode_decision(decision, ["n1"]), {"n1": 0}) == decision
