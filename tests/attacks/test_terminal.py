"""Texts that others wrote reach a user's terminal without their escapes, whichever command prints them."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attacks.hostile_server import HOSTILE, hostile_server
from managers import ROTA, Manager
from rota.cli.commands import COMMANDS
from rota.cli.main import status
from rota.cli.terminal import OUTPUT, NeutralOutput
from rota.core.neutral_text import neutral, neutral_json

attack = pytest.mark.attack
NEUTRAL = "one function makes all printed text neutral"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a manager whose every text is hostile; jobs 1 (ended), 2 (failed) and 3 (waits)."""
    made = Manager(tmp_path_factory.mktemp("hostile"), "--emulate", "gpu=1/1").start()
    made.submit("echo hello", name="ended")
    made.submit("exit 3", name="failed")
    for job_id in ("1", "2"):
        made.wait(job_id, "succeeded", "failed")
    made.client.drain("n1")
    made.submit("true", name="waits", resources={"gpus": 1})
    made.client.post("/tokens", {"name": "ada"})
    made.client.start_sweep(
        {
            "name": "waits-too",
            "parameters": {"x": {"uniform": [0.0, 1.0]}},
            "trials": 1,
            "job": {"run": "true", "resources": {"gpus": 1}},
        }
    )
    with hostile_server(made.client.url) as url:
        yield url
    made.clean_up()


ASKING: dict[str, list[list[str]]] = {
    "nodes": [["nodes"], ["nodes", "-o", "json"]],
    "drain": [["drain", "no-such"]],
    "undrain": [["undrain", "no-such"]],
    "tenants": [["tenants"], ["tenants", "-o", "csv"]],
    "login": [["login"]],
    "logout": [["logout"]],
    "whoami": [["whoami"], ["whoami", "-o", "json"]],
    "submit": [["submit", "--name", "x y", "--", "true"]],
    "ps": [["ps", "-a"], ["ps", "-a", "-o", "wide"], ["ps", "-a", "-o", "json"], ["ps", "-a", "-o", "csv"]],
    "show": [["show", "1"], ["show", "2"], ["show", "3"], ["show", "3", "-o", "json"], ["show", "99"]],
    "logs": [["logs", "1"], ["logs", "1", "--tail", "1"], ["logs", "-f", "2"], ["logs", "99"]],
    "get": [["get", "1"], ["get", "1", "-o", "json"], ["get", "99"]],
    "run": [["run", "--tenant", "no-such", "--", "true"]],
    "exec": [["exec", "99", "--", "true"], ["exec", "3", "--", "true"]],
    "attach": [["attach", "99"], ["attach", "1", "--list"]],
    "port-forward": [["port-forward", "99", "8000"], ["port-forward", "3", ":8000"]],
    "ssh-config": [["ssh-config", "99"], ["ssh-config", "3"]],
    "ssh-proxy": [["ssh-proxy", "rota-99"], ["ssh-proxy", "rota-1"]],
    "notebook": [["notebook", "--tenant", "no-such"]],
    "tensorboard": [["tensorboard", "99"]],
    "data": [["data", "list"], ["data", "list", "-o", "json"], ["data", "remove", "no-such"]],
    "template": [
        ["template", "list"],
        ["template", "show", "notebook"],
        ["template", "show", "notebook", "-o", "json"],
        ["template", "show", "no-such"],
    ],
    "why": [["why", "3"], ["why", "2"], ["why", "3", "-o", "json"]],
    "cancel": [["cancel", "99"]],
    "hold": [["hold", "99"], ["hold", "1"]],
    "release": [["release", "99"]],
    "update": [["update", "99", "--priority", "1"]],
    "requeue": [["requeue", "99"]],
    "top": [["top"]],
    "token": [["token", "list"], ["token", "list", "-o", "csv"], ["token", "revoke", "no-such"]],
    "audit": [["audit"], ["audit", "-o", "wide"], ["audit", "-o", "json"], ["audit", "verify"]],
    "estimate": [["estimate", "over-requested"]],
    "reservations": [["reservations"], ["reservations", "-o", "json"], ["reservations", "cancel", "no-such"]],
    "budgets": [["budgets"], ["budgets", "-o", "json"], ["budgets", "remove", "no-such"]],
    "alerts": [["alerts"], ["alerts", "--all", "-o", "json"], ["alerts", "rules"], ["alerts", "ack", "no-such"]],
    "search": [["search", "waits"], ["search", "waits", "-o", "json"], ["search", "nowhere"]],
    "usage": [["usage"], ["usage", "--by", "user,project", "-o", "json"], ["usage", "-o", "csv"]],
    "shares": [["shares"], ["shares", "-o", "wide"], ["shares", "-o", "json"]],
    "truth": [["truth", "-o", "json"]],
    "sweep": [["sweep", "list"], ["sweep", "list", "-o", "json"], ["sweep", "show", "99"], ["sweep", "stop", "99"]],
    "what-if": [["what-if", "--policies", "no-such"]],
    "gpus": [["gpus"], ["gpus", "--users"], ["gpus", "-o", "json"]],
}
STUDY = ("sim", "report", "trace", "check", "policies", "profiles", "plan", "fill", "experiment", "net")
ELSEWHERE = frozenset((*STUDY, "up", "demo", "k8s", "slurm", "profile", "learn", "backup", "users", "doctor", "schema"))
"""Commands that ask no manager; what they print of files goes through the same functions."""


def test_every_command_that_asks_a_manager_is_tried() -> None:
    known = {entry.name for entry in COMMANDS}

    assert known - ELSEWHERE <= ASKING.keys(), "add the command here, or to those that ask no manager"


def is_neutral(text: str, kept: str = "\n") -> bool:
    return all(char in kept or char.isprintable() for char in text)


@pytest.mark.parametrize(
    "args",
    [
        pytest.param(
            args, marks=attack(f"sends terminal escapes to a user of `rota {' '.join(args)}`", stopped_by=NEUTRAL)
        )
        for commands in ASKING.values()
        for args in commands
    ],
    ids=" ".join,
)
def test_command_prints_no_escapes(
    hostile: str,
    args: list[str],
    capsysbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("ROTA_SERVER", hostile)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("time.sleep", lambda _: None)

    status(args)

    told = capsysbinary.readouterr()
    out, err = told.out.decode(), told.err.decode()
    assert out + err, "something was printed"
    assert is_neutral(out, OUTPUT if args[0] == "logs" else "\n"), out
    assert is_neutral(err), err
    if args[0] != "logs":
        assert not any(line.startswith("error: forged") for line in (out + err).splitlines())


def test_json_keeps_the_very_text(
    hostile: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_SERVER", hostile)

    status(["ps", "-a", "-o", "json"])

    assert f"waits{HOSTILE}" in [job["name"] for job in json.loads(capsys.readouterr().out)]


def test_raw_logs_are_the_very_bytes(
    hostile: str, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_SERVER", hostile)

    status(["logs", "1", "--raw"])

    assert capsysbinary.readouterr().out == b"hello\n" + HOSTILE.encode() + b"\xff\xfe"


@pytest.mark.slow
@pytest.mark.parametrize(
    "args",
    [
        pytest.param(args, marks=attack(f"sends escapes to the terminal of `rota {args[0]}`", stopped_by=NEUTRAL))
        for args in (["ps", "-a"], ["top", "--every", "0.2"])
    ],
    ids=" ".join,
)
def test_nothing_hostile_reaches_a_real_terminal(hostile: str, args: list[str]) -> None:
    ours, theirs = pty.openpty()
    env = {**os.environ, "ROTA_SERVER": hostile, "TERM": "xterm-256color", "COLUMNS": "200"}
    process = subprocess.Popen([*ROTA, *args], env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen, deadline = b"", time.monotonic() + 30
    try:
        while time.monotonic() < deadline and (b"waits" not in seen or process.poll() is None):
            if not select.select([ours], [], [], 0.2)[0]:
                if b"waits" in seen:
                    break
                continue
            try:
                seen += os.read(ours, 65536)
            except OSError:
                break
            if len(seen) > 200_000:
                break
    finally:
        process.kill()
        process.wait()
        os.close(ours)

    text = seen.decode(errors="replace")
    assert "waits" in text
    for part in ("\x1b]0;", "\x9b", "\x7f", "\u202e", "\u2066", "\u200f", "\u2028"):
        assert part not in text


@given(st.text())
def test_any_text_becomes_printable(text: str) -> None:
    assert is_neutral(neutral(text), "")
    assert is_neutral(neutral(text, "\n"), "\n")
    assert json.loads(neutral_json(json.dumps(text, ensure_ascii=False))) == text
    assert is_neutral(neutral_json(json.dumps(text, ensure_ascii=False)))


@given(st.lists(st.binary(max_size=20)))
def test_any_output_becomes_neutral_however_it_is_cut(pieces: list[bytes]) -> None:
    shown = NeutralOutput()
    text = "".join(shown.neutral(piece) for piece in pieces) + shown.neutral(b"", last=True)

    assert is_neutral(text, OUTPUT)
    assert text == NeutralOutput().neutral(b"".join(pieces), last=True)


def test_colours_of_a_log_are_dropped_and_other_text_is_kept() -> None:
    shown = NeutralOutput()

    text = "".join(shown.neutral(piece) for piece in (b"\x1b[3", b"1mred\x1b[0m gr\xc3", b"\xbcn\t1%\r2%\n\x1b[2J"))

    assert text == "red grün\t1%\r2%\n\\x1b[2J"


def test_commands_print_through_the_neutral_function_only() -> None:
    source = Path(__file__).parents[2] / "src" / "rota" / "cli"
    direct = [path.name for path in source.rglob("*.py") if "typer.echo(" in path.read_text()]

    assert sorted(direct) == ["main.py", "terminal.py"]
