"""Behaviour at limits: shares of zero, reservations met exactly, requests for one type or node, shares that expire."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from builders import World, cluster, job, node, on
from rota.core.messages.events import Lapsed
from rota.core.model.job import DeviceType, JobId
from rota.core.state.job_record import LiveJob
from rota.mechanisms.ordering.easy_reservation import Reservation
from rota.mechanisms.rounds.deficits import Deficits
from rota.mechanisms.rounds.rule import ShareQuestion, Shares
from rota.policies.published.rounds.shockwave import Shockwave


def test_pairs_without_a_share_are_dropped_and_single_jobs_kept() -> None:
    deficits = Deficits(1, 50.0)
    deficits.join([(0,), (1,), (0, 1), (1, 2)], 1, np.ones((4, 1), dtype=np.bool_))
    deficits.set_shares({(0, 1): [0.5], (1, 2): [0.0]})

    deficits.forget_idle_pairs()

    assert deficits.contenders == [(0,), (1,), (0, 1)]


def test_job_that_ends_when_the_head_starts_uses_no_spare_devices() -> None:
    reservation = Reservation(LiveJob(job("head"), 0, 0.0, 1.0), 0.0, 100.0, 1000)

    reservation.spend(400, 100.0)
    assert reservation.spare_milli == 1000
    reservation.spend(400, 100.5)
    assert reservation.spare_milli == 600
    assert reservation.admits(600, 500.0)
    assert not reservation.admits(601, 500.0)
    assert reservation.admits(9000, 100.0)


MOVER = """
from rota.policies import DefaultSelectionRule, DeviceRequest, Selection, selection


@selection("mover")
class Mover(DefaultSelectionRule):
    def expired(self, context):
        return list(context.holding) if context.waiting else []

    def select(self, context):
        first, *others = context.in_order()
        wanted = DeviceRequest(first, {later}) if others else DeviceRequest(first, {alone})
        return Selection([wanted, *map(DeviceRequest, others)])
"""


@pytest.mark.parametrize(
    ("alone", "later"), [("'a'", "'b'"), ("None, 0", "None, 1")], ids=["of another type", "on another node"]
)
def test_holder_that_is_requested_elsewhere_does_not_keep_its_devices(tmp_path: Path, alone: str, later: str) -> None:
    (tmp_path / "mover.py").write_text(MOVER.format(alone=alone, later=later))
    nodes = cluster(node("n1", 1, device_type=DeviceType("a")), node("n2", 1, device_type=DeviceType("b")))
    world = World(of=nodes, policy=f"{tmp_path}/mover.py:Mover")
    world.submit("first")
    world.started("first")
    assert world.live("first").placement == on("n1", 1)

    world.submit("second")

    assert world.live("first").placement == on("n2", 1)
    assert world.live("second").placement == on("n1", 1)


def test_shares_are_computed_again_when_they_are_no_longer_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    plain = Shockwave.shares

    def counted(self: Shockwave, question: ShareQuestion) -> Shares:
        asked.append(question.now_s)
        return plain(self, question)

    monkeypatch.setattr(Shockwave, "shares", counted)
    world = World(gpus=1, policy="shockwave:round_s=100,future_rounds=2")
    world.submit("a", work=1000.0)
    world.started("a")
    for number in (1, 2, 3, 4):
        world.pass_s(100.0)
        world.step(Lapsed(JobId("a"), 100.0 * number))

    assert asked == [0.0, 200.0, 400.0]
