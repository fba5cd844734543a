"""Policies that know only part of the speeds: jobs run at the true ones, and what is seen corrects the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builders import job
from rota.cli.main import status
from rota.core.engine.engine import Engine
from rota.core.messages.events import JobArrived
from rota.core.model.cluster import Cluster
from rota.core.model.job import DeviceType, Job
from rota.core.state.history import History
from rota.core.state.state import State
from rota.drivers.simulator.run import run
from rota.drivers.simulator.study import Setting, believed, scheduler, simulate
from rota.drivers.simulator.world import World
from rota.perf.profiles.matrix_completion import Fill
from rota.perf.profiles.partial_profiles import KnownSpeeds, SpeedEstimate, estimate
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.model import SpeedModel
from rota.traces.workload import Submission, Workload

FAST, SLOW = DeviceType("fast"), DeviceType("slow")
TRUTH = Profiles(
    steps_per_s={
        **{(FAST, model, 1): 10.0 for model in "abcd"},
        **{(SLOW, model, 1): 2.0 for model in "abc"},
        (SLOW, "d", 1): 9.0,
    },
    source="a test",
)
"""All models but `d` are five times as fast on the fast type."""
HIDDEN = frozenset({(FAST, "a", 1), (SLOW, "d", 1)})


def told(truth: Profiles = TRUTH, fill: Fill = Fill.MEAN) -> SpeedEstimate:
    left = {key: rate for key, rate in truth.steps_per_s.items() if key not in HIDDEN}
    return estimate(KnownSpeeds(profiles=Profiles(steps_per_s=left, source="a test"), speeds=HIDDEN), fill, 0)


def setting(*, truth: Profiles = TRUTH, known: SpeedEstimate | None = None, observes: bool = False) -> Setting:
    return Setting(
        cluster=Cluster.uniform(("fast", 1, 1), ("slow", 1, 1)),
        speed=SpeedModel(profiles=truth),
        estimate=known,
        observes=observes,
    )


def workload(*jobs: Job) -> Workload:
    return Workload(
        submissions=tuple(Submission(job=each, submit_s=0.0) for each in jobs),
        source="a test",
        format="rota",
        counts_steps=True,
    )


def ends(history: History) -> dict[str, float | None]:
    return {str(record.id): record.end_s for record in history.jobs}


TWO = workload(job("a", model="a", work=36_000.0), job("d", model="d", work=36_000.0))
POLICY = "gavel/max_sum_throughput_perf:compat=none"


def test_lone_job_runs_at_its_true_speed_whatever_is_believed() -> None:
    alone = workload(job("d", model="d", work=9_000.0, device_types=(SLOW,)))

    for known in (None, told()):
        result = simulate(alone, POLICY, setting(known=known))
        assert ends(result.history)["d"] == pytest.approx(1_000.0)


def test_job_that_is_faster_than_believed_does_not_idle_until_the_round_is_over() -> None:
    """`a` is believed to make 2 steps a second and makes 10; `b` keeps its rounds long."""
    pair = workload(
        job("a", model="a", work=36_000.0, device_types=(FAST,)),
        job("b", model="b", work=36_000.0, device_types=(SLOW,)),
    )

    result = simulate(pair, "gavel/max_min_fairness_perf:compat=none", setting(known=told()))

    assert ends(result.history)["a"] == pytest.approx(3_600.0)


@pytest.mark.parametrize(
    ("policy", "fill"),
    [("gavel/min_total_duration_perf", Fill.MEAN), ("gavel/max_min_fairness_perf", Fill.COMPLETION)],
)
def test_wrong_belief_costs_and_observation_makes_good(policy: str, fill: Fill) -> None:
    jobs = workload(*(job(f"{model}{n}", model=model, work=36_000.0) for n in range(3) for model in "ad"))

    def total(known: SpeedEstimate | None, *, observes: bool = False) -> float:
        result = simulate(jobs, f"{policy}:compat=none", setting(known=known, observes=observes))
        return sum(end or 0.0 for end in ends(result.history).values())

    exact, blind, seeing = total(None), total(told(fill=fill)), total(told(fill=fill), observes=True)

    assert blind > 1.2 * exact
    assert exact <= seeing < 1.1 * exact


def test_decisions_do_not_depend_on_what_is_hidden() -> None:
    """With the hidden figures changed, all is the same up to the first moment at which somebody could tell."""
    other = Profiles(
        steps_per_s={key: 5.5 if key in HIDDEN else rate for key, rate in TRUTH.steps_per_s.items()}, source="a test"
    )

    assert _first_orders(setting(known=told())) == _first_orders(setting(truth=other, known=told(other)))


def _first_orders(of: Setting) -> list[object]:
    heard: list[object] = []

    class Ears:
        def append(self, now_s: float, events: object, decisions: object, waits: object) -> None:
            if now_s == 0.0:
                heard.append(decisions)

    policy, alloc, _ = scheduler(POLICY, of)
    engine = Engine(State(of.cluster), policy, alloc, journal=Ears())
    run(engine, World(of.cluster, of.speed, of.costs, believed(of)), TWO.submissions)
    return heard


def test_arriving_job_brings_the_believed_speed_not_the_true_one() -> None:
    of = setting(known=told())
    world = World(of.cluster, of.speed, of.costs, believed(of))

    event = world.arrival(job("d", model="d"))

    assert isinstance(event, JobArrived)
    assert event.nominal_rate == told().profiles.fastest("d", 1)
    assert event.nominal_rate != SpeedModel(profiles=TRUTH).nominal_rate(job("d", model="a"))


def test_each_run_learns_for_itself() -> None:
    of = setting(known=told(), observes=True)

    assert ends(simulate(TWO, POLICY, of).history) == ends(simulate(TWO, POLICY, of).history)


GAVEL_TABLE = {
    kind: {
        f"('{model}', 1)": {
            "null": base * factor,
            **{f"('{other}', 1)": [0.7 * base * factor, 0.7 * base * more] for other, more in MODELS.items()},
        }
        for model, factor in MODELS.items()
    }
    for MODELS in [{"m1": 1.0, "m2": 2.0, "m3": 0.5, "m4": 1.5, "m5": 0.8}]
    for kind, base in (("v100", 10.0), ("p100", 6.0), ("k80", 2.0))
}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "speeds.json").write_text(json.dumps(GAVEL_TABLE))
    rows = [
        {"id": str(n), "submit_s": 60 * n, "work": 20_000, "work_unit": "steps", "model": f"m{n % 5 + 1}", "gpus": 1}
        for n in range(12)
    ]
    (tmp_path / "jobs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return [
        *("sim", "--trace", str(tmp_path / "jobs.jsonl"), "--profiles", str(tmp_path / "speeds.json")),
        *("--cluster", "v100=2/2,p100=2/2,k80=2/2"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["gavel/max_min_fairness_perf", "gavel/max_min_fairness_packed", "srtf"])
def test_journal_with_estimates_replays(
    files: list[str], policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    args = ["--policy", policy, "--known-profiles", "0.4", "--seed", "3", "--out", str(out), "-o", "json"]

    assert status([*files, *args]) == 0
    spoken = capsys.readouterr()
    header = json.loads((out / "journal.jsonl").read_text().splitlines()[0])
    report = (out / "report.html").read_text()

    (row,) = json.loads(spoken.out)
    assert row["known_profiles"] == 0.4
    assert row["profile_error"] is None
    assert "policies know: 6 of 15 speeds known, the rest estimated (completion, rank 0); too few" in spoken.err
    assert "6 of 15 speeds known" in report
    assert header["estimate"] == {
        "known": 0.4, "fill": "completion", "observes": True, "seed": 3, "held_out_error": None,
    }  # fmt: skip
    assert header["seed"] == 3
    assert status(["sim", "--replay", str(out / "journal.jsonl")]) == 0


def test_gap_in_a_file_is_filled_when_asked(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = json.loads((tmp_path / "speeds.json").read_text())
    del table["k80"]["('m1', 1)"]
    (tmp_path / "speeds.json").write_text(json.dumps(table))

    assert status([*files, "--policy", "gavel/max_min_fairness_packed", "--estimate", "completion"]) == 0

    assert "14 of 15 speeds known, the rest estimated (completion, rank" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--known-profiles", "1.5"], "the fraction of the profiles that is known is 1.5; it must be from 0 to 1"),
        (["--estimate", "nearst"], "--estimate: unknown method 'nearst'; did you mean 'nearest'?"),
        (["--profiles", "none"], "its work is counted in steps; give their speed with --profiles FILE"),
        (["--profiles", "catalogue"], "the catalogue has no model 'm1'"),
    ],
)
def test_wrong_wishes_are_refused(
    files: list[str], args: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = list(files)
    if "--profiles" in args:  # instead of those of the fixture: given twice, it would be refused
        place = given.index("--profiles")
        del given[place : place + 2]
    assert status([*given, "--policy", "fifo", *args]) == 2

    assert message in capsys.readouterr().err
