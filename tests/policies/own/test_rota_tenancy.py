"""Rota's own policy under a tenancy: guarantees and borrowing first, levels between the jobs of one tenant."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path

import pytest

from builders import job
from docs.pages import ROOT
from rota.cli.main import status
from rota.core.model.job import TenantId
from tenancy.quota_world import own, world

POLICY = "rota:base_gpu_s=100,growth=2,margin=0"
TUTORIAL = ROOT / "docs" / "tutorial" / "tenants.md"
EXERCISES = (
    ("safety", "lab"),
    ("priority", "lab"),
    ("opportunistic", "lab"),
    ("gang", "both"),
    ("incremental", "both"),
)


def test_levels_decide_between_jobs_of_one_tenant() -> None:
    """Both tenants use what they own; a new job of one displaces its own long job, not the longer one of the other."""
    w = world({"a": own(4), "b": own(4)}, policy=POLICY)
    w.settle(w.submit("b-long", gpus=4, tenant="b"))
    w.pass_s(300.0)
    w.settle(w.submit("a-long", gpus=4, tenant="a"))
    w.settle(w.timer(w.now_s + 300.0))

    w.settle(w.submit("a-new", gpus=4, tenant="a"))

    assert w.states() == {"b-long": "running", "a-long": "waiting", "a-new": "running"}


def test_new_job_of_a_tenant_without_room_displaces_no_guaranteed_one() -> None:
    w = world({"a": own(8), "b": own(0)}, policy=POLICY)
    w.settle(w.submit("a1", gpus=4, tenant="a"))
    w.settle(w.submit("a2", gpus=4, tenant="a"))
    w.settle(w.timer(w.now_s + 5000.0))

    w.settle(w.submit("b-new", gpus=4, tenant="b"))

    assert w.states() == {"a1": "running", "a2": "running", "b-new": "waiting"}


def test_borrower_gives_back_though_its_level_is_lower() -> None:
    """`a` runs on what it owns for long and borrows; `b` gets its own devices back for a job of a higher level."""
    w = world({"a": own(4), "b": own(4)}, policy=POLICY)
    w.settle(w.submit("b1", gpus=4, tenant="b"))
    w.settle(w.timer(w.now_s + 5000.0))
    w.settle(w.submit("a1", gpus=4, tenant="a"))
    w.settle(w.ended("b1"))
    w.settle(w.submit("a2", gpus=4, tenant="a"))
    assert w.states()["a2"] == "running"

    w.settle(w.submit("b2", gpus=4, tenant="b"))

    running = {name for name, state in w.states().items() if state == "running"}
    assert "b2" in running
    assert len(running & {"a1", "a2"}) == 1


def test_users_of_a_tenant_are_compared_with_each_other_only() -> None:
    """`ann` of tenant a had the devices of her tenant for an hour, in small jobs; that is nothing to tenant b."""
    w = world({"a": own(4), "b": own(4)}, policy="rota:lenient=1", nodes=1, gpus=8)
    for number in range(100):
        asked = replace(job(f"x{number}", gpus=4), tenant=TenantId("a"), user="ann")
        w.settle(w.submit(job=asked))
        w.pass_s(35.0)
        w.settle(w.ended(f"x{number}"))
    w.settle(w.submit(job=replace(job("c", gpus=4), tenant=TenantId("b"), user="cem")))
    w.settle(w.submit(job=replace(job("bob", gpus=4), tenant=TenantId("a"), user="bob")))
    w.settle(w.timer(w.now_s + 1000.0))

    w.settle(w.submit(job=replace(job("ann", gpus=4), tenant=TenantId("a"), user="ann")))
    w.settle(w.submit(job=replace(job("dan", gpus=4), tenant=TenantId("b"), user="dan")))

    assert (w.states()["ann"], w.states()["bob"]) == ("waiting", "running")
    assert (w.states()["dan"], w.states()["c"]) == ("running", "waiting")


def rows(file: Path) -> list[list[str]]:
    """What the tutorial shows of a run: ids, tenants, priorities, times and preemptions."""
    with file.open() as table:
        return [[row[at] for at in (0, 2, 7, 8, 9, 10, 16)] for row in csv.reader(table)]


@pytest.mark.slow
@pytest.mark.parametrize(("exercise", "cluster"), EXERCISES)
def test_exercises_of_the_tutorial_end_alike(
    exercise: str, cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The guarantees that the tutorial shows under `fifo` hold under `rota`."""
    files = dict(re.findall(r"<!-- file: (\S+) -->\n```\w*\n(.*?)```", TUTORIAL.read_text(), re.DOTALL))
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    run = ["sim", "--trace", str(tmp_path / f"{exercise}.csv"), "--cluster", str(tmp_path / f"{cluster}.yaml")]

    for policy in ("fifo", "rota"):
        assert status([*run, "--tenancy", "cells", "--policy", policy, "--out", str(tmp_path / policy)]) == 0

    capsys.readouterr()
    assert rows(tmp_path / "rota" / "jobs.csv") == rows(tmp_path / "fifo" / "jobs.csv")
