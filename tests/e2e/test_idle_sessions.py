"""Terminals in which nothing happens: warned, ended with the reason, also while no manager runs; others go on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from managers import Manager, eventually
from terminals import UserTerminal

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    folder = tmp_path_factory.mktemp("idle")
    settings = folder / "settings.yaml"
    rules = "idle_sessions: {after: 4s, warn: 2s}\nhealth: {checks: []}\ncontainers: {runtime: off}\n"
    settings.write_text(rules, encoding="utf-8")
    made = Manager(folder, "--emulate", "gpu=4/4", "--config", str(settings)).start()
    yield made
    made.clean_up()


def test_idle_job_is_warned_at_its_terminal_and_ends_with_the_reason(manager: Manager) -> None:
    words = ("run", "--idle", "1s", "-e", "PS1=ready> ", "--", "sh")
    with closing(UserTerminal(words, manager.env, manager.folder)) as user:
        user.see(b"no input and no output for long; this job ends in 0.5 s unless that changes")
        user.see(b"this job ends: no input and no output for 1 s")
        assert user.ends() != 0
    job = next(iter(manager.client.jobs(all=True, limit=1)))

    assert (job["state"], job["failure"]) == ("failed", "idle")
    assert job["message"].startswith("idle: no input and no output for 1 s")
    assert "no input and no output for long" in manager.rota("show", job["id"]).stdout
    assert manager.said(job["id"]).count("this job ends") == 2


def test_idle_job_ends_while_no_manager_runs_and_is_not_tried_again(manager: Manager) -> None:
    file = {"run": ["sh"], "interactive": {"tty": True, "idle": "1s"}, "max_restarts": 3}
    job_id = manager.client.submit(file)[0]
    manager.wait(job_id, "running", "failed")
    manager.kill()
    eventually(lambda: not manager.task_processes())
    manager.start()

    job = manager.wait(job_id, "failed")

    assert (job["failure"], job["attempt"]) == ("idle", 1)


def test_command_at_a_terminal_beside_a_task_ends_and_the_task_goes_on(manager: Manager) -> None:
    job_id = manager.submit("exec sleep 3600")
    manager.wait(job_id, "running")
    with closing(UserTerminal(("exec", job_id, "--", "sleep", "3601"), manager.env, manager.folder)) as user:
        user.see(b"this session ends in 2 s unless that changes")
        user.see(b"this session ends: no input and no output for 4 s")
        assert user.ends() == 129
    piped = manager.rota("exec", job_id, "--", "echo", "goes on")

    assert piped.stdout == "goes on\n"
    assert manager.state(job_id) == "running"
    manager.client.act(job_id, "cancel")


def test_settings_that_can_t_be_are_refused(manager: Manager, tmp_path: Path) -> None:
    file = tmp_path / "rota.yaml"
    file.write_text("idle_sessions: {after: 5m}\n")

    said = manager.rota("check", str(file))
    refused = manager.rota("run", "--idle", "2h", "--", "true")

    assert said.returncode == 2
    assert "warn must be less than after" in said.stdout + said.stderr
    assert (refused.returncode, os.linesep in refused.stderr) == (2, True)
    assert "--idle is for terminals" in refused.stderr
