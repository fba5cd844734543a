"""A user's policy that fails in a live manager: it decides nothing, and everything else goes on."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from managers import Manager, eventually

pytestmark = pytest.mark.slow
POLICY = """
from dataclasses import dataclass
from rota.policies import Turn, ordering

@dataclass(frozen=True, kw_only=True)
class Params:
    "None."

@ordering("picky")
def picky(job, now_s, params: Params):
    if job.job.name == "poison":
        raise ZeroDivisionError("a key of poison")
    return Turn((job.seq,))
"""


@pytest.mark.attack("submits a job at which the manager's own policy fails", stopped_by="a fault ends a plan only")
def test_fault_of_a_users_policy_ends_no_job_and_no_manager(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(POLICY)
    manager = Manager(tmp_path, "--emulate", "gpu=2/2", "--policy", f"{tmp_path / 'mine.py'}:picky").start()
    try:
        runs = manager.submit("while [ ! -e end ]; do sleep 0.1; done", resources={"gpus": 1})
        manager.wait(runs, "running")
        poison = manager.submit("true", name="poison", resources={"gpus": 1})
        behind = manager.submit("true", resources={"gpus": 1})

        assert eventually(lambda: manager.client.why(behind)["reason"])["code"] == "policy-failed"
        fault = manager.client.get("/stats")["policy_fault"]
        assert "picky() raised ZeroDivisionError: a key of poison (mine.py, line 12)" in fault
        with urllib.request.urlopen(manager.client.url + "/metrics", timeout=10) as answer:
            assert b"rota_policy_fault 1.0" in answer.read()
        (tmp_path / "end").touch()
        manager.wait(runs, "succeeded")
        manager.kill()
        manager.start()  # the fault is still there, and so is everything else
        assert manager.client.why(behind)["reason"]["code"] == "policy-failed"
        manager.client.act(poison, "cancel")

        manager.wait(behind, "succeeded")
        assert manager.client.get("/stats")["policy_fault"] is None
        assert json.loads(manager.rota("ps", "-o", "json").stdout) == []
    finally:
        manager.clean_up()
