from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from rota.core.errors import RotaError
from rota.core.model.job import JobId
from rota.perf.profiles.catalogue import catalogue
from rota.perf.training.goodput import TRAININGS
from rota.traces import Outcome, Submission, Workload, read_trace, write_trace
from rota.traces.generators import DESCRIPTIONS, generate

DAY_S = 86400.0
each_kind = pytest.mark.parametrize("kind", DESCRIPTIONS)


def run_s(submission: Submission) -> float:
    assert submission.job.work is not None
    return submission.job.work * submission.ends_at


def offered_gpus(workload: Workload) -> float:
    gpu_s = sum(entry.job.gpus * run_s(entry) for entry in workload.submissions)
    return gpu_s / (workload.submissions[-1].submit_s - workload.submissions[0].submit_s)


def share(workload: Workload, *, outcome: Outcome) -> float:
    return sum(entry.outcome is outcome for entry in workload.submissions) / len(workload.submissions)


@each_kind
def test_same_seed_gives_the_same_bytes_and_another_does_not(tmp_path: Path, kind: str) -> None:
    contents = []
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        path = tmp_path / f"{name}.csv"
        write_trace(generate(kind, jobs=300, seed=seed), path)
        contents.append(path.read_bytes())

    assert contents[0] == contents[1]
    assert contents[0] != contents[2]


@each_kind
@pytest.mark.parametrize(("gpus", "load"), [(440, 0.85), (16, 1.3), (4000, 0.2)])
def test_offered_load_is_the_one_asked_for(kind: str, gpus: int, load: float) -> None:
    workload = generate(kind, jobs=500, seed=1, gpus=gpus, load=load)

    assert offered_gpus(workload) == pytest.approx(load * gpus, rel=0.01)


@each_kind
@pytest.mark.parametrize("gpus", [1, 4, 64])
def test_every_job_fits_the_devices_that_the_workload_is_for(kind: str, gpus: int) -> None:
    sizes = [
        max(entry.job.gpus for entry in generate(kind, jobs=800, seed=seed, gpus=gpus).submissions)
        for seed in (2, 2002)
    ]
    unbounded = max(entry.job.gpus for entry in generate(kind, jobs=800, seed=2002, gpus=4096).submissions)

    assert max(sizes) <= gpus
    assert max(sizes) == min(gpus, unbounded) or gpus > 8, "smaller than there is need for"


@each_kind
@pytest.mark.parametrize("jobs", [1, 2, 7, 1000])
def test_workload_is_sorted_whole_and_from_zero(kind: str, jobs: int) -> None:
    submissions = generate(kind, jobs=jobs, seed=3).submissions

    assert [entry.job.id for entry in submissions] == [str(number) for number in range(jobs)]
    assert submissions[0].submit_s == 0.0
    assert all(one.submit_s <= other.submit_s for one, other in pairwise(submissions))
    assert all(0 < entry.ends_at <= 1 and run_s(entry) > 0 for entry in submissions)


@each_kind
def test_generated_workload_survives_its_own_checks(tmp_path: Path, kind: str) -> None:
    workload = generate(kind, jobs=400, seed=2)
    write_trace(workload, tmp_path / "jobs.jsonl")

    assert read_trace(tmp_path / "jobs.jsonl").submissions == workload.submissions


@pytest.mark.slow
@each_kind
def test_every_job_trains_a_model_of_the_catalogue(kind: str) -> None:
    models = Counter(entry.job.model for entry in generate(kind, jobs=4000, seed=2).submissions)

    assert models.keys() <= catalogue().models.keys()
    assert len(models) > len(catalogue().models) / 2


@pytest.mark.parametrize(("kind", "label"), [("sweep", "sweep"), ("retrain", "series")])
def test_jobs_of_one_campaign_train_one_model(kind: str, label: str) -> None:
    models: dict[str, set[str | None]] = {}
    for entry in generate(kind, jobs=800, seed=2).submissions:
        models.setdefault(dict(entry.job.labels)[label], set()).add(entry.job.model)

    assert len(models) > 10
    assert all(len(names) == 1 for names in models.values())


@pytest.mark.slow
def test_philly_like_has_the_statistics_of_philly() -> None:
    workload = generate("philly-like", jobs=40_000, seed=1)
    submissions = workload.submissions
    sizes = Counter(entry.job.gpu_milli // 1000 for entry in submissions)
    tenants = Counter(entry.job.tenant for entry in submissions).most_common()
    one_gpu = [run_s(entry) for entry in submissions if entry.job.gpu_milli == 1000]
    by_weekday = Counter(int(entry.submit_s // DAY_S) % 7 for entry in submissions)
    by_hour = Counter(int(entry.submit_s % DAY_S // 3600) for entry in submissions)

    assert sizes[1] / len(submissions) == pytest.approx(0.932, abs=0.005)
    assert sizes[8] / len(submissions) == pytest.approx(0.020, abs=0.003)
    assert set(sizes) <= {1, 2, 4, 8, 16, 32, 64, 128}
    assert statistics.median(one_gpu) == pytest.approx(1117, rel=0.1)
    assert statistics.mean(one_gpu) == pytest.approx(8300, rel=0.15)
    assert max(one_gpu) < 4.7e6
    assert tenants[0][1] / len(submissions) == pytest.approx(0.50, abs=0.01)
    assert 12 <= len(tenants) <= 15
    assert share(workload, outcome=Outcome.CANCELLED) == pytest.approx(0.135, abs=0.01)
    assert share(workload, outcome=Outcome.FAILED) == pytest.approx(0.172, abs=0.01)
    assert by_hour[15] > 2 * by_hour[3]
    assert by_weekday[2] > 1.4 * by_weekday[6]


@pytest.mark.slow
def test_alibaba_like_has_the_published_sizes_and_opportunistic_best_effort_pods() -> None:
    jobs = [entry.job for entry in generate("alibaba-like", jobs=20_000, seed=1).submissions]
    best_effort = [job for job in jobs if dict(job.labels)["qos"] == "BE"]
    parts = [job for job in jobs if job.gpu_milli < 1000]

    assert all(job.tasks == 1 for job in jobs)
    assert len(parts) / len(jobs) == pytest.approx(0.378 / 0.867, abs=0.01)
    assert sum(job.gpu_milli == 1000 for job in jobs) / len(jobs) == pytest.approx(0.480 / 0.867, abs=0.01)
    assert {job.gpu_milli for job in jobs if job.gpu_milli > 1000} == {2000, 4000, 8000}
    assert {job.id for job in jobs if job.priority == -1} == {job.id for job in best_effort}
    assert sum(job.gpu_milli < 1000 for job in best_effort) > 0.8 * len(best_effort)


@pytest.mark.slow
def test_gavel_like_follows_its_generator() -> None:
    submissions = generate("gavel-like", jobs=20_000, seed=1).submissions
    sizes = Counter(entry.job.gpu_milli // 1000 for entry in submissions)
    exponents = [math.log10((entry.job.work or 0) / 60) for entry in submissions]
    gaps = [other.submit_s - one.submit_s for one, other in pairwise(submissions)]

    for gpus, expected in {1: 0.70, 2: 0.10, 4: 0.15, 8: 0.05}.items():
        assert sizes[gpus] / len(submissions) == pytest.approx(expected, abs=0.01)
    assert 1.49 < min(exponents) < 1.51
    assert 3.99 < max(exponents) < 4.01
    assert sum(exponent > 3 for exponent in exponents) / len(exponents) == pytest.approx(0.2, abs=0.01)
    assert statistics.stdev(gaps) == pytest.approx(statistics.mean(gaps), rel=0.05)


def test_sweep_comes_in_bursts_most_of_which_are_cancelled_early() -> None:
    workload = generate("sweep", jobs=5_000, seed=1)
    bursts: dict[str, list[Submission]] = {}
    for entry in workload.submissions:
        bursts.setdefault(dict(entry.job.labels)["sweep"], []).append(entry)

    assert share(workload, outcome=Outcome.CANCELLED) == pytest.approx(8 / 9, abs=0.02)
    assert all(entry.ends_at < 0.5 for entry in workload.submissions if entry.outcome is Outcome.CANCELLED)
    span_s = workload.submissions[-1].submit_s
    for burst in bursts.values():
        assert burst[-1].submit_s - burst[0].submit_s < span_s / 5
        assert len({(entry.job.user, entry.job.gpu_milli) for entry in burst}) == 1


def test_full_run_waits_for_a_probe_that_succeeds() -> None:
    submissions = generate("probe", jobs=1_000, seed=1).submissions
    by_id: dict[JobId, Submission] = {entry.job.id: entry for entry in submissions}
    full = [entry for entry in submissions if entry.job.depends_on]

    assert 300 < len(full) < 500
    for entry in full:
        probe = by_id[entry.job.depends_on[0]]
        assert probe.outcome is Outcome.SUCCEEDED
        assert probe.submit_s <= entry.submit_s
        assert run_s(probe) <= 900
    assert share(generate("probe", jobs=1_000, seed=1), outcome=Outcome.FAILED) > 0.1


def test_retraining_comes_at_equal_distances() -> None:
    series: dict[str, list[float]] = {}
    for entry in generate("retrain", jobs=500, seed=1).submissions:
        series.setdefault(entry.job.name, []).append(entry.submit_s)

    for times in series.values():
        gaps = [other - one for one, other in pairwise(times)]
        assert max(gaps, default=0) - min(gaps, default=0) <= 0.002


def test_failures_are_of_several_kinds_and_come_when_they_should() -> None:
    workload = generate("failures", jobs=5_000, seed=1)
    runs: dict[str, list[Submission]] = {}
    for entry in workload.submissions:
        runs.setdefault(dict(entry.job.labels).get("failure", "none"), []).append(entry)

    assert share(workload, outcome=Outcome.FAILED) == pytest.approx(0.6, abs=0.03)
    assert set(runs) == {
        "none",
        "import-error",
        "gpu-oom",
        "bad-input",
        "diverged",
        "node-fault",
        "time-limit",
    }
    assert all(run_s(entry) < 61 for entry in runs["import-error"])
    assert all(run_s(entry) < 601 for entry in runs["gpu-oom"])
    assert all(run_s(entry) == pytest.approx(entry.job.time_limit_s) for entry in runs["time-limit"])
    assert all(entry.outcome is Outcome.SUCCEEDED for entry in runs["none"])


def test_submissions_crowd_before_deadlines_that_can_be_met() -> None:
    submissions = generate("deadlines", jobs=3_000, seed=1, gpus=40).submissions
    due = [entry for entry in submissions if entry.job.deadline_s is not None]
    dates = Counter(entry.job.deadline_s for entry in due)
    peaks = [date for date, count in dates.most_common(3) if date is not None]
    last_days = sum(any(0 <= peak - entry.submit_s < 2 * DAY_S for peak in peaks) for entry in due)

    assert len(due) / len(submissions) == pytest.approx(0.7, abs=0.03)
    for entry in due:
        assert entry.job.deadline_s is not None
        assert entry.job.deadline_s >= entry.submit_s + 1.05 * (entry.job.work or 0)
    assert last_days / len(due) > 0.6


def test_mixed_has_all_patterns() -> None:
    submissions = generate("mixed", jobs=2_000, seed=1).submissions
    tenants = {entry.job.tenant for entry in submissions}

    assert {"vc01", "research-a", "production", "teaching"} <= tenants
    assert any(entry.job.depends_on for entry in submissions)
    assert any(entry.job.deadline_s for entry in submissions)


BAD = {
    "kind": ({"kind": "phily-like"}, "unknown kind of workload 'phily-like'; did you mean 'philly-like'?"),
    "jobs": ({"jobs": 0}, "jobs is 0; it must be at least 1"),
    "gpus": ({"gpus": 0}, "gpus is 0; it must be at least 1"),
    "load": ({"load": 0.0}, "load is 0; it must be a number above 0, such as 0.85"),
    "endless load": ({"load": math.nan}, "load is nan; it must be a number above 0, such as 0.85"),
}


@pytest.mark.parametrize(("given", "reason"), BAD.values(), ids=BAD)
def test_impossible_wishes_are_refused(given: dict[str, object], reason: str) -> None:
    wishes: dict[str, object] = {"kind": "mixed", "jobs": 10, "seed": 0} | given

    with pytest.raises(RotaError) as caught:
        generate(**wishes)  # type: ignore[arg-type]  # a table of keywords

    assert str(caught.value) == reason


def test_wishes_leave_the_jobs_as_they_are_otherwise(tmp_path: Path) -> None:
    plain = generate("philly-like", jobs=400, seed=3)
    wishing = generate("philly-like", jobs=400, seed=3, elastic=0.5, deadlines=0.25)

    def bare(workload: Workload) -> list[Submission]:
        return [
            replace(entry, job=replace(entry.job, elastic=None, model=None, deadline_s=None))
            for entry in workload.submissions
        ]

    assert bare(wishing) == bare(plain)
    elastic = [entry.job for entry in wishing.submissions if entry.job.elastic is not None]
    assert len(elastic) / 400 == pytest.approx(0.5, abs=0.08)
    assert {job.model for job in elastic} == set(TRAININGS)
    due = [entry for entry in wishing.submissions if entry.job.deadline_s is not None]
    assert len(due) / 400 == pytest.approx(0.25, abs=0.08)
    write_trace(wishing, tmp_path / "w.csv")
    assert read_trace(tmp_path / "w.csv").submissions == wishing.submissions


@pytest.mark.parametrize("wish", ["elastic", "deadlines"])
def test_a_share_above_one_is_refused(wish: str) -> None:
    with pytest.raises(RotaError, match=f"{wish} is 1.5; it must be a share of the jobs"):
        generate("philly-like", jobs=5, seed=0, **{wish: 1.5})  # type: ignore[arg-type]  # a number for either
