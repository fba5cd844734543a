"""Kubeconfigs whose users sign in with a program, as those of clouds do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from rota.core.errors import RotaError
from rota.drivers.kubernetes.api.connection import Connection, connect

SCRIPT = """#!/bin/sh
echo run >> "$COUNT"
cat "$ANSWER"
exit $STATUS
"""


def kubeconfig(folder: Path, answer: object, *, status: int = 0, command: str = "./sign-in") -> Path:
    """A kubeconfig whose program answers this."""
    program = folder / "sign-in"
    program.write_text(SCRIPT)
    program.chmod(0o755)
    (folder / "answer").write_text(answer if isinstance(answer, str) else json.dumps(answer))
    values = {"COUNT": str(folder / "count"), "ANSWER": str(folder / "answer"), "STATUS": str(status)}
    wanted = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": command,
        "env": [{"name": name, "value": value} for name, value in values.items()],
        "installHint": "install the cloud's tools",
    }
    path = folder / "config"
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "cloud",
                "contexts": [{"name": "cloud", "context": {"cluster": "cloud", "user": "me"}}],
                "clusters": [{"name": "cloud", "cluster": {"server": "https://cloud.example"}}],
                "users": [{"name": "me", "user": {"exec": wanted}}],
            }
        )
    )
    return path


def token(value: str, until: str | None = None) -> object:
    status = {"token": value} if until is None else {"token": value, "expirationTimestamp": until}
    return {"kind": "ExecCredential", "status": status}


def runs(folder: Path) -> int:
    return len((folder / "count").read_text().splitlines())


def asked(folder: Path, answer: object) -> Connection:
    return connect(None, kubeconfig(folder, answer))


def test_program_is_run_once_for_as_long_as_its_token_is_good(tmp_path: Path) -> None:
    connection = asked(tmp_path, token("abc", "2999-01-01T00:00:00Z"))

    assert [connection.credentials() for _ in range(3)] == ["abc"] * 3
    assert runs(tmp_path) == 1


def test_token_that_has_ended_is_renewed(tmp_path: Path) -> None:
    connection = asked(tmp_path, token("old", "2001-01-01T00:00:00Z"))
    assert connection.credentials() == "old"

    (tmp_path / "answer").write_text(json.dumps(token("new")))

    assert [connection.credentials() for _ in range(3)] == ["new"] * 3
    assert runs(tmp_path) == 2


@pytest.mark.parametrize(
    ("answer", "status", "command", "message"),
    [
        pytest.param("", 1, "./sign-in", "could not sign in: status 1", id="fails"),
        pytest.param("hello", 0, "./sign-in", "is not an ExecCredential", id="nonsense"),
        pytest.param({"status": {}}, 0, "./sign-in", "neither a token nor a certificate", id="nothing"),
        pytest.param({}, 0, "no-such-program", "is not installed; install the cloud's tools", id="missing"),
    ],
)
def test_program_that_does_not_sign_in_is_named(
    tmp_path: Path, answer: object, status: int, command: str, message: str
) -> None:
    connection = connect(None, kubeconfig(tmp_path, answer, status=status, command=command))

    with pytest.raises(RotaError, match=f"user 'me'.*{message}"):
        connection.credentials()
