"""Gavel's own quirks, by selector: they are behind `compat=gavel` and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from builders import job
from rota.core.model.cluster import Cluster
from rota.drivers.simulator.study import Setting, simulate
from rota.traces.workload import Submission, Workload


class Patience:
    """A journal that gives up on a run which gets nowhere."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def append(self, *step: Any) -> None:
        """One step of the engine."""
        self._left -= 1
        if not self._left:
            pytest.fail(f"the run is still not over at {step[0]:g} s")


def ends(policy: str, *jobs: tuple[float, int, float]) -> list[float | None]:
    """When jobs end that come at such times, with so many tasks and so much work, on two devices."""
    made = [
        Submission(submit_s=at_s, job=job(f"j{seq}", workers=workers, work=work))
        for seq, (at_s, workers, work) in enumerate(jobs)
    ]
    workload = Workload(submissions=tuple(made), source="made up", format="jobs")
    history = simulate(
        workload, policy, Setting(cluster=Cluster.uniform(("gpu", 2, 2))), journal=Patience(1000)
    ).history
    return [row.end_s for row in history.jobs]


@pytest.mark.parametrize(("compat", "end_s"), [("gavel", 365.0), ("none", 361.0)])
def test_fewer_steps_than_devices_fail_five_times(compat: str, end_s: float) -> None:
    """After a round of 360 steps one is left, which two devices can't share: five tries of a second each."""
    assert ends(f"gavel/isolated:compat={compat}", (0.0, 2, 361.0)) == [end_s]


@pytest.mark.parametrize(
    ("round_s", "workers", "work"),
    [(0.4, 1, 5.0), (0.4, 1, 0.3), (1.5, 2, 5.0), (0.4, 2, 1.0)],
    ids=["no whole step", "less than a step", "fewer steps than devices", "neither"],
)
def test_job_too_slow_for_a_round_keeps_parts_of_steps(round_s: float, workers: int, work: float) -> None:
    """A step takes a second. Whole steps only, such a job would fail in every round and never end."""
    assert ends(f"gavel/isolated:round_s={round_s}", (0.0, workers, work)) == [pytest.approx(work)]


def test_job_too_slow_for_a_round_holds_up_nobody_beside_it() -> None:
    """Both devices are busy from the beginning, with one job each."""
    found = ends("gavel/max_min_fairness_perf:round_s=0.4", (0.0, 1, 3.0), (0.0, 1, 5.0))

    assert found == [pytest.approx(3.0), pytest.approx(5.0)]


@pytest.mark.parametrize(("compat", "end_s"), [("gavel", 2162.0), ("none", 362.0)])
def test_newcomer_waits_until_shares_are_worked_out_again(compat: str, end_s: float) -> None:
    """Shares are worked out 1920 s apart, so after six rounds; who joined since does not run, though it could."""
    long, short = ends(f"gavel/isolated:compat={compat}", (1.0, 1, 5000.0), (2.0, 1, 1.0))

    assert long is not None
    assert short == pytest.approx(end_s)


def test_pair_with_fewer_steps_than_devices_is_not_tried_for_ever() -> None:
    """Gavel drops a job that fails on its own, but never a pair: two alone would share devices in vain without end."""
    found = ends("gavel/max_min_fairness_packed", (0.0, 2, 0.9), (0.0, 2, 0.8))

    assert all(end_s is not None for end_s in found)
