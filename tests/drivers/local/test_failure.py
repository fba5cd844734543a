"""Why a task failed, from its exit code and the end of its output."""

from __future__ import annotations

import pytest

from rota.core.messages.failures import FailureCode
from rota.drivers.local.failure import FailureClass, classify, tries_again


@pytest.mark.parametrize(
    ("code", "output", "cause"),
    [
        (127, "sh: 1: trian: not found\n", "the command was not found"),
        (127, "bash: trian: command not found\n", "the command was not found"),
        (127, "x: error while loading shared libraries: libcudart.so.12\n", "a shared library of the command was not"),
        (127, "rota: can't run 'sh' in /gone: No such file or directory\n", "it could not be started: No such file"),
        (
            127,
            "rota: can't run 'sh' in /tmp/x: tasks have a /tmp of their own\n",
            "it could not be started: tasks have",
        ),
        (127, "rota: can't run the task: PermissionError(1)\n", "it could not be started: PermissionError(1)"),
        (126, "sh: 1: ./train.py: Permission denied\n", "the command can't be executed"),
    ],
)
def test_command_that_could_not_be_run_is_told_as_such(code: int, output: str, cause: str) -> None:
    found = classify(code, None, output)

    assert found.cause.startswith(cause)
    assert (found.code, found.kind) == (FailureCode.COMMAND, FailureClass.PERMANENT)


@pytest.mark.parametrize("code", [126, 127])
def test_code_of_the_command_s_own_is_only_a_code(code: int) -> None:
    found = classify(code, None, "done with 127 of 128\n")

    assert (found.code, found.cause) == (FailureCode.EXIT, f"exit code {code}")


def test_error_of_the_program_is_tried_again_only_where_the_job_asks_for_it() -> None:
    """A `KeyError` may depend on the data; a module that is missing stays missing."""
    failure = classify(1, None, "Traceback (most recent call last):\nKeyError: 'loss'\n")
    missing = classify(1, None, "ModuleNotFoundError: No module named 'torch'\n")

    assert (failure.code, failure.kind) == ("semantic-error", FailureClass.PERMANENT)
    assert [tries_again(failure, count, 2) for count in (1, 2, 3)] == [True, True, False]
    assert not tries_again(failure, 1, None)
    assert not tries_again(missing, 1, 5)
