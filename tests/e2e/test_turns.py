"""Two jobs of a manager with a network share a link: the SDK starts their iterations half a period apart."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from managers import Manager, eventually

pytestmark = pytest.mark.slow
NETWORK = """
topology: fat-tree
per_leaf: 1
spines: 1
link: 8Gbps
between: cassini
"""
TRAIN = """
import time
import rota.sdk
shift = rota.sdk.IterationShift()
print(shift.shift_s, shift.period_s, flush=True)
while True:
    shift.begin()
    print(time.time(), flush=True)
    time.sleep(0.95 * shift.period_s)
"""


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    """Two nodes with four devices each and a link."""
    (tmp_path / "net.yaml").write_text(NETWORK)
    (tmp_path / "train.py").write_text(TRAIN)
    made = Manager(tmp_path, "--emulate", "gpu=8/4", "--network", str(tmp_path / "net.yaml")).start(within_s=90)
    yield made
    made.clean_up()


def test_iterations_of_two_jobs_take_turns(manager: Manager) -> None:
    def started(gpus: int) -> str:
        """A job with one task on each node, which computes for 0.6 s and sends for 0.4 s."""
        ranks = 2 * gpus
        sent = 0.4e9 / (2 * (ranks - 1) / ranks)
        labels = {"compute_s": "0.6", "comm_bytes": f"{sent:.0f}", "overlap": "0"}
        asked = {"workers": 2, "resources": {"gpus": gpus}, "labels": labels}
        job = manager.client.submit({"run": [sys.executable, str(manager.folder / "train.py")], **asked})[0]
        manager.wait(job, "running")
        return job

    jobs = [started(gpus) for gpus in (3, 1)]  # too wide for one node, and then one device is left on each
    eventually(lambda: all(len(manager.said(job).split()) > 9 for job in jobs))
    said = [manager.said(job).split() for job in jobs]
    terms = [(float(lines[0]), float(lines[1])) for lines in said]

    assert [manager.client.job(job)["nodes"] for job in jobs] == [["n1", "n2"]] * 2
    (first_s, period_s), (second_s, other_s) = terms
    assert first_s == 0.0
    assert 0.25 * period_s < second_s < 0.75 * period_s
    assert other_s == pytest.approx(period_s, rel=0.06)
    for (shift_s, own_s), lines in zip(terms, said, strict=True):
        late_s = statistics.median((float(line) - shift_s + 0.05 * own_s) % own_s for line in lines[2:])
        assert late_s < 0.2 * own_s  # it was 0.05 early for the modulo; a start may be a tenth late
