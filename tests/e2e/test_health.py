"""Failures on a live manager: verdicts, retries that follow them, and the health of nodes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from managers import Manager, eventually

pytestmark = pytest.mark.slow

ECC_ONCE = """
if [ "$ROTA_ATTEMPT" = 1 ]; then echo 'RuntimeError: CUDA error: uncorrectable ECC error encountered'; exit 1; fi
echo recovered
"""


@contextmanager
def running(tmp_path: Path, health: str, emulate: str = "gpu=8/4") -> Iterator[Manager]:
    """A manager with these settings of health, and a check that fails on nodes with a file of their name."""
    checks = tmp_path / "checks"
    checks.mkdir()
    program = checks / "probe"
    program.write_text(
        f"#!/bin/sh\n[ -e {tmp_path}/$ROTA_NODE ] || exit 0\n"
        f"code=$(cat {tmp_path}/$ROTA_NODE); [ $code != crash ] || exec python3 -c 'import no_such_module'\n"
        'echo "{\\"status\\": $code, \\"text\\": \\"a link is down\\"}"; exit $code\n'
    )
    program.chmod(0o755)
    settings = tmp_path / "up.yaml"
    settings.write_text(f"health: {{checks: [], programs: checks, {health}}}\n")
    manager = Manager(tmp_path, "--emulate", emulate, "--config", str(settings)).start()
    try:
        yield manager
    finally:
        manager.clean_up()


def test_device_error_is_tried_again_on_another_node_with_a_verdict(manager: Manager) -> None:
    job_id = manager.submit(ECC_ONCE, resources={"gpus": 1})

    ended = manager.wait(job_id, within_s=60)

    verdict = manager.client.why(job_id)["verdicts"][0]
    told = manager.rota("why", job_id).stdout
    assert (ended["state"], ended["attempt"]) == ("succeeded", 2)
    assert (verdict["cause"], verdict["blame"], verdict["remedy"]) == ("ecc-error", "node", "after-repair")
    assert verdict["nodes"] == ["n1"]
    assert "evidence: RuntimeError: CUDA error: uncorrectable ECC error encountered" in told
    assert [node["health"] for node in manager.client.nodes()] == ["healthy", "healthy"]


def test_bug_of_a_job_is_not_tried_again(manager: Manager) -> None:
    job_id = manager.submit("echo \"KeyError: 'lr'\"; exit 1")

    ended = manager.wait(job_id)

    assert (ended["state"], ended["attempt"], ended["failure"]) == ("failed", 1, "semantic-error")
    assert "not tried again" in manager.rota("why", job_id).stdout


def test_lost_run_counts_in_the_failure_rate_and_what_jobs_print_does_not(manager: Manager) -> None:
    seen = manager.home / "failures-seen.json"
    before = json.loads(seen.read_text())["failures"] if seen.exists() else 0
    printed = manager.submit(ECC_ONCE, resources={"gpus": 1})
    manager.wait(printed)
    job_id = manager.submit('[ "$ROTA_ATTEMPT" = 2 ] || sleep 600', resources={"gpus": 1})
    node = manager.wait(job_id, "running")["nodes"][0]

    eventually(lambda: manager.kill_on(node))

    assert manager.wait(job_id)["state"] == "succeeded"
    assert json.loads(seen.read_text())["failures"] == before + 1


def health(manager: Manager) -> list[tuple[str, str]]:
    return [(node["health"], node["state"]) for node in manager.client.nodes()]


def test_node_whose_check_fails_is_drained_and_comes_back_after_repair(tmp_path: Path) -> None:
    with running(tmp_path, "every: 0.4s") as manager:
        (tmp_path / "n2").write_text("2")

        eventually(lambda: health(manager) == [("healthy", "up"), ("bad", "drained")])
        assert manager.client.nodes()[1]["health_why"] == "a link is down"
        manager.kill()
        manager.start()
        assert health(manager) == [("healthy", "up"), ("bad", "drained")]
        (tmp_path / "n2").unlink()
        manager.client.repair("n2")
        eventually(lambda: health(manager) == [("healthy", "up"), ("healthy", "up")])


def test_check_that_crashes_is_shown_as_broken_and_its_node_stays_healthy(tmp_path: Path) -> None:
    with running(tmp_path, "every: 0.2s") as manager:
        (tmp_path / "n2").write_text("crash")
        eventually(lambda: manager.client.nodes()[1]["broken_checks"])

        assert manager.client.nodes()[1]["broken_checks"].endswith("No module named 'no_such_module'")
        assert "broken checks" in manager.rota("nodes").stdout
        assert 'rota_broken_checks{check="probe"} 1.0' in httpx.get(f"{manager.client.url}/metrics", timeout=30).text
        (tmp_path / "n1").write_text("2")  # by then, the other has been checked several times
        eventually(lambda: health(manager) == [("bad", "drained"), ("healthy", "up")])
        (tmp_path / "n2").unlink()
        eventually(lambda: manager.client.nodes()[1]["broken_checks"] is None)


def test_suspect_takes_only_jobs_that_tolerate_it(tmp_path: Path) -> None:
    (tmp_path / "n1").write_text("1")
    with running(tmp_path, "every: 30s", "gpu=4/4") as manager:
        eventually(lambda: health(manager) == [("suspect", "up")])
        (tmp_path / "n1").unlink()  # three good checks, 3 s each, clear the node
        tolerant = manager.submit("sleep 600", resources={"gpus": 1}, tolerate_suspects=True, priority=1)
        manager.wait(tolerant, "running")
        strict = manager.submit("true", resources={"gpus": 1})
        why = manager.rota("why", strict).stdout
        manager.wait(strict, "succeeded")

    assert "no schedulable node matches its labels and tolerations" in why


def test_nodes_of_a_large_job_are_checked_before_it_starts(tmp_path: Path) -> None:
    with running(tmp_path, "every: 1h, large: 4") as manager:
        first = manager.submit("sleep 100", resources={"gpus": 4})
        manager.wait(first, "running")
        (tmp_path / "n2").write_text("2")  # not due for a check within the first quarter of an hour

        job_id = manager.submit("echo on $ROTA_NODE", resources={"gpus": 4})
        eventually(lambda: health(manager)[1] == ("bad", "drained"))
        manager.client.act(first, "cancel")
        manager.wait(job_id, "succeeded")

        assert "on n1" in manager.said(job_id)


STEPS = """
import os, time, rota.sdk
for _ in rota.sdk.steps(range(100000), save_every_s=3600):
    time.sleep(0.2 if os.environ["ROTA_NODE"] == "n2" else 0.02)
"""


def test_rank_that_straggles_is_swapped(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STEPS)
    with running(tmp_path, "every: 0s, straggler: swap, stall_after: 2s", "gpu=4/1") as manager:
        job_id = manager.client.submit(
            {
                "run": [sys.executable, str(tmp_path / "train.py")],
                "workers": 3,
                "resources": {"gpus": 1},
                "checkpoint": {"grace": "5s"},
            }
        )[0]
        eventually(lambda: manager.client.job(job_id)["nodes"] == ["n1", "n3", "n4"], within_s=180)

        verdict = manager.client.why(job_id)["verdicts"][0]
        assert (verdict["cause"], verdict["nodes"]) == ("straggler", ["n2"])


def test_table_of_causes_of_one_s_own_comes_first(tmp_path: Path) -> None:
    (tmp_path / "ours.toml").write_text(
        '[[cause]]\nname = "licence"\nsays = "no licence was free"\ntier = 1\nblame = "unknown"\nremedy = "never"\n'
        "patterns = ['licence server said no']\n"
    )
    (tmp_path / "up.yaml").write_text("health: {causes: ours.toml}\n")
    manager = Manager(tmp_path, "--emulate", "gpu=8/4", "--config", str(tmp_path / "up.yaml")).start()
    try:
        job_id = manager.submit("echo 'the licence server said no'; exit 1", max_restarts=3)

        ended = manager.wait(job_id)
    finally:
        manager.clean_up()

    assert (ended["state"], ended["attempt"], ended["failure"]) == ("failed", 1, "licence")
    assert ended["message"].startswith("no licence was free")
