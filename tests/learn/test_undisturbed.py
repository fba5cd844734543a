"""Jobs of a journal that run again among neighbours are slowed down by these once, not twice."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from rota.cli.main import status
from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import JobId, NodeId
from rota.learn.undisturbed import mean_speeds

JOBS = """id,submit_s,work,gpus,model
a,0,900,1,alexnet
b,100,600,1,alexnet
c,200,300,1,alexnet
d,250,500,1,resnet50
"""
NOTE = "--contention: the slowdown by neighbours of the jobs of"


class Lab:
    """Four jobs that share the four devices of a node."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder = folder
        self._capsys = capsys

    def first(self, *args: str) -> tuple[float, Path]:
        """How long the jobs take, and the journal of it."""
        trace = self._folder / "jobs.csv"
        trace.write_text(JOBS)
        jct_s, _ = self.run(trace, "--cluster", "p100=4/4", "--out", str(self._folder / "first"), *args)
        return jct_s, self._folder / "first" / "journal.jsonl"

    def run(self, trace: Path, *args: str) -> tuple[float, str]:
        """How long they take, and what is told of it."""
        assert (
            status(["sim", "--trace", str(trace), "--policy", "fifo", "--profiles", "none", "-o", "json", *args]) == 0
        )
        said = self._capsys.readouterr()
        rows: list[dict[str, Any]] = json.loads(said.out)
        return float(rows[0]["avg_jct_s"]), said.err

    def live(self, journal: Path) -> Path:
        """The journal as a manager would have written it: begun in a state, years after time 0."""
        header, *steps = map(json.loads, journal.read_text().splitlines())
        header["snapshot"] = {"now_s": 1e9, "seq": 0, "jobs": [], "drained": [], "down": []}
        del header["speed"]
        lines = [header, *({**step, "t": step["t"] + 1e9} for step in steps)]
        path = self._folder / "live.jsonl.gz"
        path.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
        return path


@pytest.fixture
def lab(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Lab:
    return Lab(tmp_path, capsys)


@pytest.mark.slow
def test_journal_run_again_as_it_was_ends_as_it_did(lab: Lab) -> None:
    first_s, journal = lab.first("--contention")

    again_s, told = lab.run(journal, "--contention")

    assert again_s == pytest.approx(first_s, rel=1e-6)
    assert f"{NOTE} {journal} is taken out" in told
    assert lab.run(journal)[0] == pytest.approx(first_s, rel=1e-6)


@pytest.mark.slow
def test_jobs_of_a_managers_journal_have_had_neighbours(lab: Lab) -> None:
    first_s, journal = lab.first("--contention")

    again_s, told = lab.run(lab.live(journal), "--contention")

    assert again_s == pytest.approx(first_s, rel=1e-6)
    assert NOTE in told


@pytest.mark.slow
def test_where_neighbours_had_cost_nothing_nothing_is_taken_out(lab: Lab) -> None:
    contended_s, _ = lab.first("--contention")
    first_s, journal = lab.first()

    again_s, told = lab.run(journal, "--contention")

    assert first_s < 0.9 * contended_s
    assert again_s == pytest.approx(contended_s, rel=1e-6)
    assert NOTE not in told


@pytest.mark.slow
def test_other_cluster_does_not_change_what_is_taken_out(lab: Lab) -> None:
    alone_s, _ = lab.first()
    _, journal = lab.first("--contention")

    apart_s, _ = lab.run(journal, "--contention", "--cluster", "p100=16/4", "--placement", "spread")

    assert apart_s == pytest.approx(alone_s, rel=1e-6)


@pytest.mark.slow
def test_broken_order_of_a_journal_is_one_line(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    _, journal = lab.first("--contention")
    journal.write_text(journal.read_text().replace('"order":"start","job_id"', '"order":"start","job"'))

    assert status(["sim", "--trace", str(journal), "--policy", "fifo", "--contention"]) == 2

    assert capsys.readouterr().err == f"error: {journal}:2: a broken step: KeyError: 'job_id'\n"


def test_time_before_the_first_step_counts_for_no_job() -> None:
    def runs(name: str, device: int) -> dict[str, Any]:
        job = {"id": name, "model": "alexnet", "roles": [{"cpu_milli": 10_000}]}
        return {"job": job, "placement": [["n1", [device], 1, 0, 1000]], "rate": 1.0}

    def step(at_s: float, *ended: str) -> dict[str, Any]:
        events = [{"event": "ended", "job_id": name, "end": "succeeded", "work": 1.0} for name in ended]
        return {"t": 1e9 + at_s, "in": events}

    lines = [{"snapshot": {"jobs": [runs("a", 0), runs("b", 1)]}}, step(0), step(100, "a"), step(200, "b")]
    found = mean_speeds(map(json.dumps, lines), Cluster(nodes=(Node(id=NodeId("n1"), devices=4),)))

    assert found[JobId("a")] < 0.9
    assert found[JobId("b")] == pytest.approx((found[JobId("a")] + 1.0) / 2)
