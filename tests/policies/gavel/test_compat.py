"""Gavel's own quirks, by hand: they are behind `compat=gavel` and nowhere else."""

from __future__ import annotations

import pytest

from builders import job
from rota.core.cluster import Cluster
from rota.drivers.simulator.study import Setting, simulate
from rota.traces.workload import Submission, Workload


def ends(policy: str, *jobs: tuple[float, int, float]) -> list[float | None]:
    """When jobs end that come at such times, with so many tasks and so much work, on two devices."""
    made = [
        Submission(submit_s=at_s, job=job(f"j{seq}", workers=workers, work=work))
        for seq, (at_s, workers, work) in enumerate(jobs)
    ]
    workload = Workload(submissions=tuple(made), source="made up", format="jobs")
    history = simulate(workload, policy, Setting(cluster=Cluster.uniform(("gpu", 2, 2)))).history
    return [row.end_s for row in history.jobs]


@pytest.mark.parametrize(("compat", "end_s"), [("gavel", 365.0), ("none", 361.0)])
def test_fewer_steps_than_devices_fail_five_times(compat: str, end_s: float) -> None:
    """After a round of 360 steps one is left, which two devices can't share: five tries of a second each."""
    assert ends(f"gavel/isolated:compat={compat}", (0.0, 2, 361.0)) == [end_s]


@pytest.mark.parametrize(("compat", "end_s"), [("gavel", 2162.0), ("none", 362.0)])
def test_newcomer_waits_until_shares_are_worked_out_again(compat: str, end_s: float) -> None:
    """Shares are worked out 1920 s apart, so after six rounds; who joined since does not run, though it could."""
    long, short = ends(f"gavel/isolated:compat={compat}", (1.0, 1, 5000.0), (2.0, 1, 1.0))

    assert long is not None
    assert short == pytest.approx(end_s)
