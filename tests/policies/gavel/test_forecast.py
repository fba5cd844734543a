"""Room for jobs that are still to come: how many are expected, and what present jobs leave them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from builders import job
from rota.core.errors import RotaError
from rota.core.model.job import DeviceType
from rota.core.state.job_record import LiveJob
from rota.mechanisms.arrays import Floats
from rota.mechanisms.rounds.rule import RoundJob, ShareQuestion
from rota.policies import find_policy
from rota.policies.published.gavel.declare import LpParams
from rota.policies.published.gavel.forecast import ArrivalForecast
from rota.policies.published.gavel.max_min import MaxMin

TYPES = (DeviceType("fast"), DeviceType("slow"))


def one(seq: int, came_s: float, speeds: tuple[float, float]) -> RoundJob:
    live = LiveJob(job(f"j{seq}", work=9000.0, model="m"), seq, came_s, 1.0)
    return RoundJob(live, seq, 1, 1.0, None, "a", speeds, (True, True), (1, 1), ("m", 1, speeds, (1, 1)))


def asked(now_s: float, jobs: Sequence[RoundJob]) -> ShareQuestion:
    def beside(a: RoundJob, b: RoundJob) -> Floats:
        return np.zeros((2, 2))

    return ShareQuestion(now_s, list(jobs), TYPES, (1, 1), beside)


def rule(*, sees_types: bool = True) -> ArrivalForecast:
    return ArrivalForecast(MaxMin(LpParams(), sees_types=sees_types))


def test_present_jobs_leave_the_next_ones_the_devices_that_suit_them() -> None:
    """Two hours in, four jobs have come: 4 / 7200 * 3600 / 2 = one guest, which is three times as fast on one type.

    Alone, the indifferent job would have all of either type. With a guest of speeds (3, 1) it is best to be on the
    slow type: both then have a whole device.
    """
    foresight = rule()
    stays, picky = one(0, 0.0, (1.0, 1.0)), (3.0, 1.0)
    foresight.shares(asked(0.0, [stays]))
    for seq in range(1, 5):
        foresight.shares(asked(1000.0 * seq, [stays, one(seq, 1000.0 * seq, picky)]))

    shares = foresight.shares(asked(7200.0, [stays]))

    assert list(shares) == [(0,)]
    assert shares[0,] == pytest.approx([0.0, 1.0])


def test_who_was_there_at_first_is_no_arrival() -> None:
    foresight = rule()
    crowd = [one(seq, 0.0, (3.0, 1.0)) for seq in range(20)]
    foresight.shares(asked(0.0, crowd))

    foresight.shares(asked(7200.0, crowd[:1]))

    assert foresight.memory["lately"] == []


def test_arrivals_are_forgotten_after_four_hours() -> None:
    foresight = rule()
    foresight.shares(asked(0.0, []))
    foresight.shares(asked(10.0, [one(0, 10.0, (3.0, 1.0)), one(1, 10.0, (3.0, 1.0))]))
    assert len(foresight.memory["lately"]) == 2

    foresight.shares(asked(14411.0, [one(0, 10.0, (3.0, 1.0))]))

    assert foresight.memory["lately"] == []


@pytest.mark.parametrize("name", ["fifo", "isolated", "gandiva", "allox"])
def test_policies_without_a_program_refuse_it_by_name(name: str) -> None:
    declared, _ = find_policy(f"gavel/{name}")

    with pytest.raises(RotaError, match=f"policy 'gavel/{name}' has no parameter 'forecast'"):
        declared.read("forecast=true")
