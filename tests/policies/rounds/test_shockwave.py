"""Shockwave: a window's market cleared by selector."""

from __future__ import annotations

import pytest

from builders import job
from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.core.model.job import DeviceType
from rota.core.state.job_record import LiveJob
from rota.drivers.simulator.study import Setting, simulate
from rota.mechanisms.arrays import Floats
from rota.mechanisms.rounds.rule import RoundJob, ShareQuestion, Shares, round_job
from rota.perf.speed.model import SpeedModel
from rota.policies import find_policy
from rota.policies.published.rounds.shockwave import Shockwave, ShockwaveParams, outlook
from rota.traces.workload import Submission, Workload

GPU = DeviceType("gpu")


def beside(one: RoundJob, other: RoundJob) -> Floats:
    raise AssertionError("nobody shares devices")


def question(*works: float, devices: int = 1, now_s: float = 0.0, gpus: tuple[int, ...] = ()) -> ShareQuestion:
    """Jobs of so many seconds on one type."""
    sizes = gpus or (1,) * len(works)
    lives = [
        LiveJob(job(f"j{seq}", gpus=size, work=work), seq, 0.0, 1.0)
        for seq, (work, size) in enumerate(zip(works, sizes, strict=True))
    ]
    made = [round_job(live, SpeedModel(), (GPU,), (live.job.gpus <= devices,)) for live in lives]
    return ShareQuestion(now_s, made, (GPU,), (devices,), beside)


def bought(asked: ShareQuestion, **fields: float) -> list[float]:
    """What each job buys of a window of two rounds of 100 s."""
    values = {"future_rounds": 2, "round_s": 100.0, "priority_power": 0.0, "regularizer": 0.0, **fields}
    shares = Shockwave(ShockwaveParams(**values)).shares(asked)  # type: ignore[arg-type] # rounds are whole
    return [shares[(each.seq,)][0] for each in asked.jobs]


def test_short_job_buys_its_first_stretch_first() -> None:
    # The first fifth of a job is worth (ln 0.2 - ln 1e-6) / 0.2 = 61.03 per unit, the second (ln 0.4 - ln 0.2) / 0.2
    # = 3.47. A second is 1/1000 of the long job and 1/100 of the short: 0.610 per second for the short job's first
    # 20 s, then 0.0610 for the long job's first 200 s, then 0.0347 for the short job's next 20 s. Of the 200 s of the
    # window the short job buys 20, the long one the other 180.
    assert bought(question(1000.0, 100.0)) == pytest.approx([0.9, 0.1])


def test_gang_pays_for_every_device() -> None:
    # On 2 devices the window has 400 device-seconds. The gang of 2 needs two of them for each of its seconds: 0.305
    # per device-second in its first 20 s, as against 0.610 of the single job; then 0.0174 against 0.0347. First
    # fifths: 20 + 40 = 60 device-seconds. The rest of the single job, 80 s at 3.47, 2.03, 1.44 and 1.12 hundredths per
    # device-second, takes 80; the gang's, half as dear, 160; 300 are sold in all, and the jobs are complete.
    assert bought(question(100.0, 100.0, devices=2, gpus=(2, 1))) == pytest.approx([0.5, 0.5])


def test_makespan_counts_when_it_is_weighed() -> None:
    # The longest rest falls by a second for each second that the long job runs, as long as it stays the longest: with
    # a weight of 1, more than the 0.610 / (2 jobs x 2 rounds) of the short job's progress. All 200 s go to it.
    assert bought(question(1000.0, 100.0), regularizer=1.0) == pytest.approx([1.0, 0.0])


def test_job_that_fares_worse_weighs_more() -> None:
    # At 1,000 s neither job has run. Contention is 2 jobs on 1 device: rho = (1000 + 2 x 1000) / (2 x 1000) = 1.5 and
    # (1000 + 2 x 100) / (2 x 100) = 6. With power 2 the weights are (1.5/6)^2 = 1/16 and 1: the long job's first fifth
    # is worth 0.0610 / 16 = 0.0038 a second, and the short job's last 20 s (ln 1 - ln 0.8) / 0.2 / 100 = 0.0112.
    asked = question(1000.0, 100.0, now_s=1000.0)

    assert outlook(asked, 2.0).weight == pytest.approx([1 / 16, 1.0])
    assert bought(asked, priority_power=2.0) == pytest.approx([0.5, 0.5])


def test_window_is_bought_again_when_it_is_over() -> None:
    # Two jobs of 1000 s on one device, windows of 2 x 100 s: each window is worth the most when both have a fifth.
    # Nobody comes or goes in the first 1000 s, so without a second market the shares would stay as at first.
    jobs = [job("a", work=1000.0), job("b", work=1000.0), job("late", work=100.0)]
    submissions = tuple(Submission(job=each, submit_s=at_s) for each, at_s in zip(jobs, (0.0, 0.0, 650.0), strict=True))
    workload = Workload(submissions=submissions, source="test", format="rota")
    setting = Setting(cluster=Cluster.uniform(("gpu", 1, 1)))

    rows = simulate(workload, "shockwave:future_rounds=2,round_s=100", setting).history.jobs

    ends = {row.id: row.end_s for row in rows}
    assert max(value for value in ends.values() if value is not None) == pytest.approx(2100.0)
    assert ends["late"] is not None
    assert ends["late"] < 1500.0


def test_every_window_has_its_market_though_no_job_comes_or_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_s: list[float] = []
    clear = Shockwave.shares

    def recorded(self: Shockwave, question: ShareQuestion) -> Shares:
        asked_s.append(question.now_s)
        return clear(self, question)

    monkeypatch.setattr(Shockwave, "shares", recorded)
    jobs = tuple(Submission(job=job(name, work=400.0), submit_s=0.0) for name in ("a", "b"))
    workload = Workload(submissions=jobs, source="test", format="rota")

    simulate(workload, "shockwave:future_rounds=2,round_s=100", Setting(cluster=Cluster.uniform(("gpu", 1, 1))))

    assert asked_s[:3] == [0.0, 200.0, 400.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("round_s=0", "round_s is 0; it must be a finite number above 0"),
        ("future_rounds=0", "future_rounds is 0; it must be 1 or more"),
        ("regularizer=-1", "must be numbers of 0 or more"),
    ],
)
def test_impossible_parameters_are_refused(options: str, message: str) -> None:
    with pytest.raises(RotaError, match=message):
        find_policy("shockwave")[0].read(options)


def test_job_that_can_not_run_anywhere_buys_nothing() -> None:
    asked = question(100.0, 100.0, devices=1, gpus=(1, 2))

    assert bought(asked) == pytest.approx([0.5, 0.0])
