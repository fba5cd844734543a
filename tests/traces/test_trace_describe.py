from __future__ import annotations

from dataclasses import replace

import pytest

from rota.core.model.job import Role
from rota.traces import Outcome, Submission, Workload
from rota.traces.describe import describe
from rota.traces.generators import generate
from traces.trace_samples import sub


def workload(*submissions: Submission, counts_steps: bool = False) -> Workload:
    return Workload(submissions=submissions, source="x", format="rota", counts_steps=counts_steps)


def test_numbers_of_a_small_workload() -> None:
    found = describe(
        workload(
            sub("a", 100.0, 10.0, gpus=4, tenant="red", user="ann"),
            replace(sub("b", 110.0, 40.0, tenant="blue", outcome=Outcome.CANCELLED), ends_at=0.5),
            sub("c", 120.0, 0.0, gpus=3, user="bob"),
            sub("d", 140.0, 5.0, role=Role(device_milli=500), user="bob"),
        ),
        bins=4,
    )

    assert (found.jobs, found.span_s, found.tenants, found.users) == (4, 40.0, 3, 2)
    assert found.gpu_hours == pytest.approx((40 + 20 + 2.5) / 3600)
    assert found.offered_gpus == pytest.approx(62.5 / 40)
    assert found.outcomes == {"succeeded": 3, "cancelled": 1}
    assert [(size.gpus, size.jobs) for size in found.sizes] == [("0.5", 1), ("1", 1), ("3-4", 2)]
    assert [size.gpu_time_share for size in found.sizes] == pytest.approx([2.5 / 62.5, 20 / 62.5, 40 / 62.5])
    assert (found.work["min"], found.work["median"], found.work["max"]) == (0.0, 10.0, 20.0)
    assert found.load_gpus == pytest.approx((4.0, 1.0, 1.0, 0.0))


def test_load_counts_parts_of_bins_and_what_outlives_the_span() -> None:
    found = describe(
        workload(sub("a", 0.0, 15.0, gpus=2), sub("b", 25.0, 1.0), sub("c", 25.0, 1e9), sub("d", 40.0, 1.0)),
        bins=4,
    )

    assert found.load_gpus == pytest.approx((2.0, 1.0, 0.5 + 0.1, 1.0))


def test_load_of_all_bins_is_the_device_time_within_the_span() -> None:
    generated = generate("mixed", jobs=500, seed=1)
    found = describe(generated, bins=37)
    end_s = generated.submissions[-1].submit_s
    within = sum(
        entry.job.gpus * min((entry.job.work or 0) * entry.ends_at, end_s - entry.submit_s)
        for entry in generated.submissions
    )

    assert sum(found.load_gpus) * found.bin_s == pytest.approx(within)


def test_steps_have_no_seconds() -> None:
    found = describe(workload(sub("a", 0.0, 500.0), sub("b", 9.0, 700.0), counts_steps=True))

    assert (found.work_unit, found.work["max"]) == ("steps", 700.0)
    assert (found.gpu_hours, found.offered_gpus, found.load_gpus) == (None, None, ())
    assert found.sizes[0].gpu_time_share is None


def test_all_at_once_has_no_span_and_no_load_over_time() -> None:
    found = describe(workload(sub("a", 5.0, 1.0), sub("b", 5.0, 1.0)))

    assert (found.span_s, found.offered_gpus, found.load_gpus) == (0.0, None, ())
