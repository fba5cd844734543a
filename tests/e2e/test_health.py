"""Failures on a live manager: verdicts, retries that follow them, and the health of nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from managers import Manager, eventually

pytestmark = pytest.mark.slow

ECC_ONCE = """
if [ "$ROTA_ATTEMPT" = 1 ]; then echo 'RuntimeError: CUDA error: uncorrectable ECC error encountered'; exit 1; fi
echo recovered
"""


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


def test_node_whose_check_fails_is_drained_and_comes_back_after_repair(tmp_path: Path) -> None:
    checks = tmp_path / "checks"
    checks.mkdir()
    program = checks / "probe"
    program.write_text(
        f'#!/bin/sh\n[ "$ROTA_NODE" = n2 ] && [ -e {tmp_path}/broken ] || exit 0\n'
        'echo \'{"text": "a link is down"}\'; exit 2\n'
    )
    program.chmod(0o755)
    settings = tmp_path / "up.yaml"
    settings.write_text("health: {every: 0.4s, checks: [disk], programs: checks}\n")
    manager = Manager(tmp_path, "--emulate", "gpu=8/4", "--config", str(settings)).start()
    try:
        (tmp_path / "broken").touch()

        def health() -> list[tuple[str, str]]:
            return [(node["health"], node["state"]) for node in manager.client.nodes()]

        eventually(lambda: health() == [("healthy", "up"), ("bad", "drained")])
        assert manager.client.nodes()[1]["health_why"] == "a link is down"
        (tmp_path / "broken").unlink()
        manager.client.repair("n2")
        eventually(lambda: health() == [("healthy", "up"), ("healthy", "up")])
    finally:
        manager.clean_up()


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
