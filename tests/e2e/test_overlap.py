"""A manager under `liquid`: the next job is started while the one before it saves, and a kill loses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from managers import Manager, eventually

pytestmark = pytest.mark.slow


def test_next_job_starts_while_the_one_before_saves_and_both_outlive_a_kill(tmp_path: Path) -> None:
    manager = Manager(tmp_path, "--policy", "liquid", "--emulate", "gpu=1/1", "--cgroups", "off").start()
    wait = "until [ -e {} ]; do sleep 0.02; done"
    try:
        first = manager.submit(f'echo saving > "$ROTA_TELL"; {wait.format(tmp_path / "saved")}', resources={"gpus": 1})
        second = manager.submit(f"echo began; {wait.format(tmp_path / 'done')}", resources={"gpus": 1})
        third = manager.submit("true", resources={"gpus": 1})
        eventually(lambda: manager.said(second))
        manager.wait(second, "running")
        assert [manager.client.job(name)["state"] for name in (first, third)] == ["running", "waiting"]

        manager.kill()
        manager.start()
        assert [manager.client.job(name)["state"] for name in (first, second, third)] == [
            "running",
            "running",
            "waiting",
        ]
        (tmp_path / "saved").touch()
        assert manager.wait(first)["state"] == "succeeded"
        assert manager.client.job(third)["state"] == "waiting"
        (tmp_path / "done").touch()
        jobs = [manager.wait(name) for name in (first, second, third)]
        assert [(each["state"], each["attempt"]) for each in jobs] == [("succeeded", 1)] * 3
        assert manager.said(second) == "began\n"
    finally:
        manager.stop()
        manager.clean_up()
