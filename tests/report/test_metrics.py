from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from report.histories import history, row, simulated, sub
from rota.report.metrics import finish_time_fairness, jain, measure, measure_tenants, quantile

# On four devices: a and b side by side, then c on all of them after b has ended.
ROWS = (
    row("a", 0.0, 0.0, 100.0, gpus=2),
    row("b", 0.0, 0.0, 50.0, gpus=2),
    row("c", 20.0, 100.0, 140.0, gpus=4),
)


def test_times_are_those_of_the_definitions() -> None:
    figures = measure(history(*ROWS))

    assert figures.avg_jct_s == (100 + 50 + 120) / 3
    assert figures.median_jct_s == 100.0
    assert figures.p99_jct_s == pytest.approx(100 + 0.98 * 20)
    assert figures.makespan_s == 140.0
    assert figures.avg_wait_s == 80 / 3


def test_utilisation_is_device_time_held_over_devices_times_makespan() -> None:
    assert measure(history(*ROWS)).gpu_allocation == (200 + 100 + 160) / (4 * 140)


def test_makespan_begins_with_the_first_submission() -> None:
    late = history(row("a", 1000.0, 1010.0, 1110.0))

    assert measure(late).makespan_s == 110.0


@given(st.lists(st.floats(0.0, 1e9), min_size=1), st.floats(0.0, 1.0))
def test_percentile_is_that_of_numpy(values: list[float], q: float) -> None:
    assert quantile(sorted(values), q) == pytest.approx(float(np.quantile(values, q)))


def test_percentile_of_nothing_is_nothing() -> None:
    assert quantile([], 0.5) is None


def test_finish_time_fairness_divides_by_the_time_with_a_share_of_one_in_n() -> None:
    ratios = finish_time_fairness(history(*ROWS))

    # Jobs present: 2 in [0, 20), 3 in [20, 50), 2 in [50, 100), 1 in [100, 140).
    in_a = (2 * 20 + 3 * 30 + 2 * 50) / 100
    in_b = (2 * 20 + 3 * 30) / 50
    in_c = (3 * 30 + 2 * 50 + 1 * 40) / 120
    assert ratios == pytest.approx(
        [
            100 / (100 * max(1, 2 * in_a / 4)),
            50 / (50 * max(1, 2 * in_b / 4)),
            120 / (40 * max(1, 4 * in_c / 4)),
        ]
    )


def test_job_alone_on_the_cluster_fares_as_it_should() -> None:
    assert finish_time_fairness(history(row("a", 5.0, 5.0, 25.0, gpus=4))).tolist() == [1.0]


def test_job_without_an_end_has_no_fairness_but_is_present() -> None:
    alone = finish_time_fairness(history(row("a", 0.0, 0.0, 100.0, gpus=4)))
    beside = finish_time_fairness(
        history(row("a", 0.0, 0.0, 100.0, gpus=4), row("open", 0.0, None, None, state="waiting"))
    )

    assert alone[0] == 1.0
    assert beside[0] == 0.5
    assert np.isnan(beside[1])


@pytest.mark.parametrize(
    ("values", "expected"),
    [([1.0, 1.0, 1.0], 1.0), ([1.0, 0.0, 0.0, 0.0], 0.25), ([1.0, 3.0], 16 / 20)],
    ids=["alike", "one-has-all", "one-to-three"],
)
def test_jain_index(values: list[float], expected: float) -> None:
    assert jain(np.array(values)) == pytest.approx(expected)


def test_worst_fairness_and_jain_are_over_the_same_ratios() -> None:
    past = history(*ROWS)
    figures = measure(past)
    ratios = finish_time_fairness(past)

    assert figures.worst_finish_time_fairness == ratios.max()
    assert figures.jain_fairness == jain(ratios)


def test_fragmentation_is_the_part_of_free_device_time_on_nodes_in_use() -> None:
    # Two nodes of two: one job of one device leaves one fragment of one and a whole node free.
    result, _ = simulated([sub("a", 0.0, 100.0)], gpus=4, per_node=2)

    assert measure(result.history).fragmentation == 100 / 300


def test_overhead_counts_restarts_and_lost_work() -> None:
    past = history(row("a", 0.0, 0.0, 100.0, overhead_s=15.0, lost_s=5.0, preemptions=1, restarts=2))

    figures = measure(past)

    assert figures.preemption_overhead == 0.2
    assert (figures.preemptions, figures.restarts) == (1, 2)


def test_preemption_is_a_stop_of_a_running_job_that_is_not_its_end() -> None:
    jobs = [sub("long", 0.0, 100.0, gpus=4), sub("short", 10.0, 5.0, gpus=4)]
    result, _ = simulated(jobs, "srtf", restart_s=2.0)

    figures = measure(result.history)

    assert (figures.preemptions, figures.finished) == (1, 2)
    assert figures.makespan_s == 107.0
    assert figures.preemption_overhead == 2 / 107


def test_deadline_is_met_by_success_in_time_only() -> None:
    past = history(
        row("in-time", 0.0, 0.0, 10.0, deadline_s=10.0),
        row("late", 0.0, 0.0, 11.0, deadline_s=10.0),
        row("failed", 0.0, 0.0, 5.0, deadline_s=10.0, state="failed"),
        row("open", 0.0, 0.0, None, deadline_s=10.0, state="running"),
        row("at-once", 0.0, 0.0, 0.0, deadline_s=0.0),
        row("none", 0.0, 0.0, 10.0),
    )

    figures = measure(past)

    assert (figures.deadlines, figures.deadlines_met) == (5, 2)


def test_job_that_never_ran_counts_but_has_no_completion_time() -> None:
    figures = measure(history(*ROWS, row("gone", 0.0, None, 1000.0, state="cancelled")))

    assert (figures.jobs, figures.finished, figures.cancelled) == (4, 3, 1)
    assert figures.avg_jct_s == 90.0
    assert figures.makespan_s == 140.0


def test_run_without_jobs_has_figures_too() -> None:
    figures = measure(history())

    assert (figures.jobs, figures.avg_jct_s, figures.gpu_allocation, figures.jain_fairness) == (0, None, 0.0, None)


def test_tenants_utilisation_adds_up_to_the_whole() -> None:
    past = history(*(row(r.id, r.submit_s, r.start_s, r.end_s, gpus=r.gpus, tenant=f"t-{r.id}") for r in ROWS))

    by_tenant = measure_tenants(past)

    assert list(by_tenant) == ["t-a", "t-b", "t-c"]
    assert sum(t.gpu_allocation for t in by_tenant.values()) == pytest.approx(measure(past).gpu_allocation)
    assert by_tenant["t-c"].avg_jct_s == 120.0
    assert by_tenant["t-c"].makespan_s == 120.0
