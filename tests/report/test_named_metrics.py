"""Metrics by name, by hand on small histories, and the window that they are taken in."""

from __future__ import annotations

import numpy as np
import pytest

from builders import job
from rota.core.errors import RotaError
from rota.drivers.simulator.study import Setting, simulate
from rota.experiments.experiment_file import parse_trim
from rota.files.cluster import read_cluster
from rota.perf.device_facts import PRICES, assumed_facts, known_type
from rota.report.fluid_sharing import fluid_completion_s
from rota.report.measured_run import MeasuredRun, measured_run
from rota.report.named_metrics import METRICS_BY_NAME, find_metrics, measure_named
from rota.report.timeline import Timeline
from rota.scenario import SteadyWindow, Trim
from rota.traces.workload import Submission, Workload


def _measured(window: SteadyWindow | None = None, **jobs: tuple[float, float]) -> MeasuredRun:
    """Jobs of one device, by name: submission and work, first in first out on two devices."""
    cluster = read_cluster("v100=2/2")
    workload = Workload(
        submissions=tuple(Submission(job=job(name, work=work), submit_s=at_s) for name, (at_s, work) in jobs.items()),
        source="test",
        format="rota",
    )
    timeline = Timeline(cluster)
    history = simulate(workload, "fifo", Setting(cluster=cluster), journal=timeline).history
    return measured_run(history, timeline, cluster, window or SteadyWindow())


def _values(run: MeasuredRun) -> dict[str, float]:
    return {name: value for name, value in measure_named(run).items() if value is not None}


def test_times_of_jobs_are_those_of_their_formulas() -> None:
    found = _values(_measured(a=(0.0, 10.0), b=(0.0, 30.0), c=(0.0, 20.0)))  # c waits for a: 10 to 30

    assert found["avg_jct_s"] == pytest.approx((10 + 30 + 30) / 3)
    assert found["median_jct_s"] == 30.0
    assert found["avg_queueing_s"] == pytest.approx(10 / 3)
    assert found["avg_slowdown"] == pytest.approx((1 + 1 + 1.5) / 3)
    assert found["makespan_s"] == 30.0
    assert found["allocation"] == pytest.approx(1.0)
    assert found["goodput"] == pytest.approx(1.0)


def test_median_of_four_values_lies_between_two() -> None:
    found = _values(_measured(a=(0.0, 1.0), b=(100.0, 2.0), c=(200.0, 5.0), d=(300.0, 9.0)))

    assert found["median_jct_s"] == 3.5


def test_energy_and_cost_count_devices_by_type() -> None:
    found = _values(_measured(a=(0.0, 3600.0)))  # one of two devices, for an hour

    assert found["energy_kwh"] == pytest.approx(0.3 + 0.15 * 0.3)
    assert found["cost_usd"] == pytest.approx(2.48)


def test_fluid_sharing_divides_devices_equally_and_caps_requests() -> None:
    submit, gpus, ideal = np.array([0.0, 0.0, 0.0]), np.array([1.0, 4.0, 4.0]), np.array([10.0, 10.0, 10.0])

    done = fluid_completion_s(submit, gpus, ideal, 4.0)

    # The small job has its device until 10; the large ones share 3, then 4, and need 40 device-seconds each.
    assert done[0] == pytest.approx(10.0)
    assert done[1] == done[2] == pytest.approx(10 + (40 - 15) / 2)


def test_job_larger_than_the_cluster_takes_longer_in_proportion() -> None:
    done = fluid_completion_s(np.array([5.0]), np.array([8.0]), np.array([10.0]), 4.0)

    assert done[0] == pytest.approx(20.0)


def test_fairness_is_stated_against_each_yardstick() -> None:
    run = _measured(a=(0.0, 10.0), b=(0.0, 10.0), c=(0.0, 10.0))  # fluid: each has two thirds, 15 s

    assert run.fluid.tolist() == pytest.approx([10 / 15, 10 / 15, 20 / 15])
    assert run.themis[0] == pytest.approx(10 / (10 * 3))
    assert _values(run)["unfair_fluid"] == pytest.approx(1 / 3)


def test_window_leaves_out_jobs_and_the_drain() -> None:
    jobs = {str(n): (100.0 * n, 100.0) for n in range(10)}
    window = SteadyWindow(warm_up=Trim(jobs=2), cool_down=Trim(fraction=0.2))

    run = _measured(window, **jobs)

    assert (run.jobs, run.from_s, run.until_s) == (6, 200.0, 700.0)
    assert run.excludes_drain
    assert _values(run)["allocation"] == pytest.approx(0.5)  # one of two devices is always held


def test_window_by_time_counts_from_the_first_and_last_submission() -> None:
    jobs = {str(n): (100.0 * n, 50.0) for n in range(10)}

    run = _measured(SteadyWindow(warm_up=Trim(seconds=150.0), cool_down=Trim(seconds=100.0)), **jobs)

    assert run.ids == ("2", "3", "4", "5", "6", "7", "8")


def test_empty_window_is_refused() -> None:
    with pytest.raises(RotaError, match=r"no job is left between a warm-up of 5 jobs and a cool-down of 0s \(1 jobs\)"):
        _measured(SteadyWindow(warm_up=Trim(jobs=5)), a=(0.0, 1.0))


@pytest.mark.parametrize(
    ("text", "trim"),
    [("200 jobs", Trim(jobs=200)), ("10%", Trim(fraction=0.1)), ("2h", Trim(seconds=7200.0)), (0, Trim())],
)
def test_amounts_that_are_left_out_are_read(text: object, trim: Trim) -> None:
    assert parse_trim(text) == trim


@pytest.mark.parametrize("text", ["many", "100%", "-5 jobs", "90", "0.1"])
def test_amount_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(RotaError):
        parse_trim(text)


def test_unknown_metric_names_the_nearest() -> None:
    with pytest.raises(RotaError, match="unknown metric 'avg_jct'; did you mean 'avg_jct_s'"):
        find_metrics(["avg_jct"])


def test_every_metric_has_a_formula() -> None:
    assert all(metric.formula and metric.title for metric in METRICS_BY_NAME.values())


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("V100M32", "v100"),
        ("Tesla-V100-SXM2-32GB", "v100"),
        ("NVIDIA-A100-SXM4", "a100"),
        ("T4", "t4"),
        ("G2", None),
        ("a1000", None),
    ],
)
def test_types_are_known_by_the_names_that_clusters_give_them(name: str, meant: str | None) -> None:
    """Alibaba's nodes and NVIDIA's driver write a type in their own ways; a wrong price would not be seen."""
    assert known_type(name, PRICES) == meant
    assert (assumed_facts([name]) is None) is (meant is not None)
