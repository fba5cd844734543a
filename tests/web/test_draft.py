"""The values of a job file as the submit page edits them."""

from __future__ import annotations

import pytest

from rota.core.errors import RotaError
from rota.web.draft import clone_of, plain_values, put, text_of, values_of


def test_text_is_read_back_as_the_same_values() -> None:
    values = {"name": "two-lines", "resources": {"gpus": 1}, "run": "echo a\necho b\n"}

    assert values_of(text_of(values)) == values
    assert "run: |" in text_of(values)


def test_dates_become_text() -> None:
    assert plain_values(values_of("deadline: 2026-12-01T08:00:00\nrun: 'true'")) == {
        "deadline": "2026-12-01T08:00:00",
        "run": "true",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "job: must be a mapping of fields to values"),
        ("run: &a [*a]", "the alias \\*a repeats what it is in"),
        ("? [1, 2]\n: run", "job"),
        ("run: !!binary aGk=", "is not a value that a job file can hold"),
    ],
)
def test_values_that_no_job_file_can_hold_are_refused(text: str, message: str) -> None:
    with pytest.raises(RotaError, match=message):
        plain_values(values_of(text))


def test_removing_the_last_value_removes_its_mapping() -> None:
    values = {"resources": {"gpus": 1}, "run": "true"}

    put(values, "resources.gpus", None)

    assert values == {"run": "true"}


def test_clone_names_the_secrets_to_enter_again() -> None:
    values, missing = clone_of({"run": "true", "array": 3, "env": {"A": "1", "KEY": {"secret": "hush"}}})

    assert values == {"run": "true", "env": {"A": "1"}}
    assert missing == ["KEY"]
