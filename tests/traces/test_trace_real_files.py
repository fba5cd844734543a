"""The published files themselves, where they are at hand; nothing of them is kept here."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from rota.traces import Workload, read_trace
from rota.traces.describe import describe

DATA = os.environ.get("ROTA_DATA")
pytestmark = pytest.mark.skipif(DATA is None, reason="ROTA_DATA does not name a folder with the public traces")


def real(name: str) -> Path:
    path = Path(DATA or ".") / name
    if not path.exists():
        pytest.skip(f"{name} is not in ROTA_DATA")
    return path


@pytest.fixture(scope="module")
def philly() -> Workload:
    return read_trace(real("philly/philly.csv"))


@pytest.mark.slow
def test_philly_is_read_whole(philly: Workload) -> None:
    found = describe(philly)

    assert (philly.format, philly.skipped, philly.left_out) == ("philly", 0, 0)
    assert (found.jobs, found.tenants) == (82_247, 15)
    assert found.sizes[0].job_share == pytest.approx(0.932, abs=0.001)
    assert sum(size.jobs for size in found.sizes) == found.jobs
    assert (found.work["min"], found.work["max"]) == (1.0, 4_628_226.0)
    assert max(entry.job.gpu_milli for entry in philly.submissions) == 128_000
    assert philly.submissions[0].submit_s == 0.0


@pytest.mark.slow
def test_first_ten_thousand_of_philly_are_the_ones_others_measured(philly: Workload) -> None:
    """Their conversion for the Tiresias simulator is sorted, stable and from the first submission."""
    converted = read_trace(real("tiresias/philly10000_tiresias.csv"))
    first = philly.submissions[:10_000]

    assert first[-1].submit_s / 3600 == pytest.approx(733.6, abs=0.1)
    assert [(entry.submit_s, entry.job.gpu_milli, float(int(entry.job.work or 0))) for entry in first] == [
        (entry.submit_s, entry.job.gpu_milli, entry.job.work) for entry in converted.submissions
    ]


@pytest.mark.slow
def test_philly_is_read_in_well_under_a_second() -> None:
    path = real("philly/philly.csv")
    took_s = []
    for _ in range(3):
        begin_s = time.process_time()
        read_trace(path)
        took_s.append(time.process_time() - begin_s)

    assert min(took_s) < 1.0


COUNTS = {
    "gavel/max_min_fairness.trace": ("gavel", 96, 46_317),
    "gavel/minimize_makespan.trace": ("gavel", 100, 0),
    "gavel/medium_test.trace": ("gavel", 20, 0),
    "gavel/gen_single_120.trace": ("gavel", 120, 34_905),
    "gavel/gen_single_300.trace": ("gavel", 300, None),
    "tiresias/60_job.csv": ("tiresias", 60, None),
    "tiresias/philly1000_tiresias.csv": ("tiresias", 1_000, None),
    "blox/blox_synth_500.csv": ("blox", 500, None),
    "blox/blox_synth_1000.csv": ("blox", 1_000, None),
}


@pytest.mark.parametrize(("name", "expected"), COUNTS.items(), ids=COUNTS)
def test_other_files_are_recognised_and_read_whole(name: str, expected: tuple[str, int, float | None]) -> None:
    workload = read_trace(real(name))
    format, jobs, last_s = expected

    assert (workload.format, len(workload.submissions)) == (format, jobs)
    assert workload.counts_steps is (format == "gavel")
    assert last_s is None or int(workload.submissions[-1].submit_s) == last_s
