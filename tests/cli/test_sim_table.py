"""What `rota sim` and `rota policies` show a person, and how they refuse."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Rota = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.slow
def test_wide_table_has_delays_and_deadlines(rota: Rota, tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("id,submit_s,work,gpus,deadline_s\na,0,100,1,120\nb,0,100,1,120\n", encoding="utf-8")
    study = ("sim", "--trace", str(trace), "--cluster", "gpu=1/1", "--policy", "fifo")

    wide, narrow = rota(*study, "-o", "wide"), rota(*study)

    head, row = wide.stdout.splitlines()[0], wide.stdout.splitlines()[-1]
    assert all(title in head for title in ("fair-share delay", "fragmentation delay", "deadlines", "met"))
    assert "fair-share delay" not in narrow.stdout
    assert " 50s 0s 2 1 " in " ".join(row.split())


@pytest.mark.slow
def test_too_much_disk_is_named(rota: Rota, tmp_path: Path) -> None:
    trace, cluster = tmp_path / "jobs.jsonl", tmp_path / "lab.yaml"
    trace.write_text('{"id":"a","submit_s":0,"work":1,"roles":[{"name":"w","count":1,"disk_bps":75}]}\n', "utf-8")
    cluster.write_text("nodes:\n  - {name: n1, type: gpu, gpus: 1, disk: 50}\n", encoding="utf-8")

    refused = rota("sim", "--trace", str(trace), "--cluster", str(cluster), "--policy", "fifo")

    assert refused.returncode == 2
    assert "job a needs 75 bits a second of disk for a task, and no node has more than 50" in refused.stderr


@pytest.mark.slow
def test_attempts_take_time(rota: Rota, tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("id,submit_s,work,gpus\na,0,100,1\n", encoding="utf-8")
    study = ("sim", "--trace", str(trace), "--cluster", "gpu=1/1", "--policy", "fifo")

    refused = rota(*study, "--placement", "attempts:every=0")

    assert refused.returncode == 2
    assert "placement 'attempts': every is '0'; an attempt must take longer than 0 seconds" in refused.stderr


@pytest.mark.slow
def test_parameters_are_explained_without_indentation(rota: Rota) -> None:
    told = rota("policies", "capacity")

    assert "\n`entities` are tenants" in told.stdout
