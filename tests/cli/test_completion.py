"""Shells complete ids of jobs of the running manager, and names of policies."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import typer

from managers import Manager
from rota.cli import completion
from rota.cli.commands import COMMANDS
from rota.cli.lazy_group import load

ROTA = [sys.executable, "-c", "import sys; sys.argv[0] = 'rota'; from rota.cli.main import run; run()"]


def completed(words: str, state: Path) -> str:
    """Return what the completion of bash offers for a line."""
    asked = {"_ROTA_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    env = {**os.environ, **asked, "XDG_STATE_HOME": str(state)}
    done = subprocess.run(ROTA, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.slow
def test_policies_are_completed(tmp_path: Path) -> None:
    assert completed("rota sim --policy tir", tmp_path).split() == ["tiresias"]


@pytest.mark.slow
def test_nothing_is_offered_and_nothing_printed_without_a_manager(tmp_path: Path) -> None:
    assert completed("rota why ", tmp_path).split() == []


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    """A manager that has one of everything that has a name."""
    manager = Manager(tmp_path_factory.mktemp("completed"), "--emulate", "gpu=2/2").start()
    try:
        ended = manager.submit("true", name="ended")
        manager.wait(ended, "succeeded")
        manager.submit("sleep 600", name="first")
        manager.submit("sleep 600", name="second")
        (images := manager.folder / "images").mkdir()
        manager.client.put_data_set("images", {"path": str(images)})
        manager.client.put_budget("month", {"tenant": "default", "gpu_hours": 5})
        sweep = {"parameters": {"lr": [1, 2]}, "sampler": "grid", "job": {"run": "true"}, "name": "rates"}
        manager.client.start_sweep(sweep)
        yield manager
    finally:
        manager.clean_up()


@pytest.mark.slow
def test_ids_of_jobs_are_completed(manager: Manager) -> None:
    offered = completed("rota why ", manager.folder / "state")

    assert {"2", "3"} <= set(offered.split())
    assert "1" not in offered.split()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("complete", "begun", "wanted"),
    [
        (completion.job_ids, "2", "2"),
        (completion.all_job_ids, "1", "1"),
        (completion.sweep_ids, "s", "s1"),
        (completion.template_names, "pytorch", "pytorch-ddp"),
        (completion.data_set_names, "i", "images"),
        (completion.tenant_names, "", "default"),
        (completion.node_names, "n", "n1"),
        (completion.alert_rules, "gpu-", "gpu-gone"),
        (completion.budget_names, "", "month"),
    ],
    ids=lambda value: value if isinstance(value, str) and value else None,
)
def test_names_that_the_manager_knows_are_completed(
    complete: completion.Names, begun: str, wanted: str, manager: Manager
) -> None:
    ctx = SimpleNamespace(params={"server": manager.client.url})

    offered = complete(cast(typer.Context, ctx), begun)

    assert wanted in [name for name, _ in offered]
    assert all(name.startswith(begun) for name, _ in offered)


def test_last_event_of_a_list_is_completed() -> None:
    assert completion.job_events("end,f") == ["end,fail"]
    assert completion.job_events("") == ["start", "end", "fail", "preempted"]


NAMED = ("job", "jobs", "sweep", "template", "node", "alert", "policy", "tenant")
NUMBERS = {"sim jobs", "policies jobs", "experiment jobs", "trace generate jobs"}
OTHERS = {"tenants add tenant", "users add tenant", "token create tenant", "learn eval policy"}
"""What is new, has commas between names, or is another kind of policy."""


def test_every_name_that_the_manager_knows_has_a_completion() -> None:
    lacking = {
        f"{path} {param.name}"
        for path, command in _commands()
        for param in command.params
        if param.name in NAMED and param._custom_shell_complete is None
    }

    assert lacking == NUMBERS | OTHERS


def _commands() -> Iterator[tuple[str, Any]]:
    for entry in COMMANDS:
        command = load(entry)
        for name, below in getattr(command, "commands", {}).items():
            yield f"{entry.name} {name}", below
        yield entry.name, command
