"""`rota submit` before anything is sent: files are read, options merged, and mistakes named by file."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.cli.jobs.submit import _files_named, _from_file
from rota.cli.main import status
from rota.core.errors import RotaError

FILES = [Path("first.yaml"), Path("second.yaml")]


@pytest.mark.parametrize(
    ("files", "message", "shown"),
    [
        (FILES, "job 2: run is missing; add it", "second.yaml: run is missing; add it"),
        (FILES[:1], "job: run is missing; add it", "first.yaml: run is missing; add it"),
        (FILES, "job 7: run is missing", "job 7: run is missing"),
        ([], "job: run is missing", "job: run is missing"),
        (FILES, "no manager runs here", "no manager runs here"),
    ],
)
def test_errors_name_the_file(files: list[Path], message: str, shown: str) -> None:
    with pytest.raises(RotaError) as caught, _files_named(files):
        raise RotaError(message)

    assert str(caught.value) == shown


def test_dates_become_text(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("run: 'true'\ndeadline: 2026-12-01T08:00:00\n")

    assert _from_file(path) == {"run": "true", "deadline": "2026-12-01T08:00:00"}


@pytest.mark.parametrize(
    ("text", "args", "message"),
    [
        ("run: !!binary aGk=\n", (), "job.yaml: it can't be sent to a manager: JSON has no bytes"),
        ("run: &a [*a]\n", (), "job.yaml:1: the alias *a repeats what it is in"),
        ("- run\n", (), "job.yaml: it must be a mapping of fields to values"),
        ("run: x\nresources: [1]\n", ("--gpus", "2"), "job.yaml: resources is [1]; it must be a mapping"),
        ("run: x\nenv: 5\n", ("--env", "A=1"), "job.yaml: env is 5; it must be a mapping"),
        ("run: x\n", ("--env", "A"), "--env is 'A'; write it as NAME=VALUE"),
    ],
)
def test_mistake_is_named_before_anything_is_sent(
    text: str,
    args: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROTA_SERVER", "http://127.0.0.1:9")
    (tmp_path / "job.yaml").write_text(text)

    assert status(["submit", "job.yaml", *args]) == 2
    assert f"error: {message}" in capsys.readouterr().err


@pytest.mark.parametrize("array", ["0-999999999", "0-9999,20000-20001", ",".join(["0-9999"] * 1000) + ",10000"])
def test_array_with_too_many_members_is_refused_before_they_are_made(
    array: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(["submit", "--array", array, "--", "true"]) == 2
    assert "a manager takes 1000 at once" in capsys.readouterr().err


@pytest.mark.parametrize("array", ["0-9%", "0-9%0", "0-9%x", "0-9%-1", "0-9%1%1", "%3"])
def test_array_limit_that_is_no_number_is_refused(array: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["submit", "--array", array, "--", "true"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: --array is '{array}'; ")
    assert "0-9%4" in said
