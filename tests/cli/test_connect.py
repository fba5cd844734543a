"""Where commands find their manager."""

from __future__ import annotations

import socket

import pytest

from rota.cli.main import status


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> str:
    """An address at which nothing listens; both variables name something else."""
    monkeypatch.setenv("ROTA_SERVER", "http://127.0.0.1:9/variable")
    monkeypatch.setenv("ROTA_CONTEXT", "another")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("is_first", [True, False], ids=["before the command", "after the command"])
@pytest.mark.parametrize("command", ["ps", "nodes", "token list"])
def test_server_is_taken_before_and_after_the_command(
    command: str, is_first: bool, nowhere: str, capsys: pytest.CaptureFixture[str]
) -> None:
    option, words = ["--server", nowhere], command.split()

    assert status([*option, *words] if is_first else [*words, *option]) == 1
    assert f"error: the manager at {nowhere} " in capsys.readouterr().err


def test_manager_and_cluster_together_are_refused(nowhere: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["--server", nowhere, "--context", "lab", "ps"]) == 2
    assert f"--server {nowhere} is a manager and --context lab a Kubernetes cluster" in capsys.readouterr().err
