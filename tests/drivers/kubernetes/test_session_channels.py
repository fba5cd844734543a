from __future__ import annotations

import json

import pytest

from rota.api.interactive.pod_relay import overlap
from rota.core.errors import RotaError
from rota.drivers.kubernetes.objects.job_objects import objects_of
from rota.drivers.kubernetes.sessions.channels import exit_of
from rota.files.job import submitted_job


def failure(**more: object) -> bytes:
    return json.dumps({"status": "Failure", **more}).encode()


@pytest.mark.parametrize(
    ("said", "code", "why"),
    [
        (b'{"metadata":{},"status":"Success"}', 0, ""),
        (failure(details={"causes": [{"reason": "ExitCode", "message": "137"}]}), 137, ""),
        (failure(details={"causes": [{"reason": "ExitCode", "message": "many"}]}), 1, ""),
        (failure(message="no such file"), None, "no such file"),
        (failure(details={"causes": "none"}, message="odd"), None, "odd"),
        (failure(details=[], message="odd"), None, "odd"),
        (b"plain words\n", None, "plain words"),
        (b"[1]", None, "[1]"),
        (b"", None, "the connection to the pod was lost"),
    ],
)
def test_end_is_read_from_the_error_channel(said: bytes, code: int | None, why: str) -> None:
    assert exit_of(said) == (code, why)


@pytest.mark.parametrize(
    ("log", "said", "known"),
    [
        (b"", b"ab", 0),
        (b"xxab", b"abc", 2),
        (b"ab", b"ab", 2),
        (b"abab", b"abc", 2),
        (b"abc", b"abx", 0),
        (b"a", b"", 0),
    ],
)
def test_output_in_the_log_is_not_said_twice(log: bytes, said: bytes, known: int) -> None:
    assert overlap(log, said) == known


@pytest.mark.parametrize("tty", [True, False])
def test_interactive_job_has_an_input_and_a_name(tty: bool) -> None:
    file = submitted_job({"image": "x:1", "run": ["sh"], "interactive": {"tty": tty}})

    made = objects_of(file, "1f2e", "team-a", user="ann", queue="nlp")[0]

    template = made["spec"]["template"]
    container = template["spec"]["containers"][0]
    assert (container["stdin"], container["tty"], container["stdinOnce"]) == (True, tty, not tty)
    notes = template["metadata"]["annotations"]
    assert (notes["rota.dev/user"], notes["rota.dev/queue"]) == ("ann", "nlp")


def test_idle_time_of_a_terminal_is_refused() -> None:
    file = submitted_job({"image": "x:1", "run": ["sh"], "interactive": {"tty": True, "idle": "2h"}})

    with pytest.raises(RotaError, match="interactive has `idle`, which pods do not know"):
        objects_of(file, "1f2e", "team-a")
