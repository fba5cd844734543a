from __future__ import annotations

import os
import pty
import resource
import subprocess
import sys
from collections.abc import Callable

import pytest
import typer

from rota import __version__
from rota.cli import commands, main
from rota.cli.command_entry import CommandEntry, CommandGroup
from rota.cli.commands import COMMANDS
from rota.core.errors import RotaError

Rota = Callable[..., subprocess.CompletedProcess[str]]
HEAVY = ("numpy", "plotly", "polars", "pydantic", "yaml")


def blunder(policy: str = "fifo") -> None:
    """Fails as the name says."""
    match policy:
        case "mistake":
            raise RotaError("unknown policy 'lsa';\n did you mean 'las'?")
        case "interrupt":
            raise KeyboardInterrupt
        case "disk":
            raise PermissionError(13, "Permission denied", "out/report.html")
        case "status":
            raise typer.Exit(100)
        case "bug":
            raise ZeroDivisionError
        case _:
            typer.echo(policy)


blunders = typer.Typer(no_args_is_help=True)
blunders.command("big")(blunder)
blunders.command("small")(blunder)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs `rota` in this process with a command `blunder` that fails in every way."""
    entries = tuple(
        CommandEntry(name=name, target=f"{__name__}:{name}", summary="Fail.", group=CommandGroup.STUDY)
        for name in ("blunder", "blunders")
    )
    monkeypatch.setattr(commands, "COMMANDS", entries)
    return lambda *args: main.status(args)


@pytest.mark.parametrize(
    ("args", "status", "stderr"),
    [
        (["blunder"], 0, ""),
        (["blunder", "--policy", "mistake"], 2, "error: unknown policy 'lsa'; did you mean 'las'?\n"),
        (["blunder", "--policy", "interrupt"], 130, ""),
        (["blunder", "--policy", "disk"], 1, "error: out/report.html: Permission denied\n"),
        (["blunder", "--policy", "status"], 100, ""),
        (
            ["blunder", "--plicy", "fifo"],
            2,
            "error: no such option: --plicy (Possible options: --policy)\nhint: rota blunder --help\n",
        ),
        (
            ["blunder", "extra"],
            2,
            "error: got unexpected extra argument(s) (extra)\nhint: rota blunder --help\n",
        ),
        (
            ["blundr"],
            2,
            "error: no such command 'blundr'. Did you mean 'blunder', 'blunders'?\nhint: rota --help\n",
        ),
        (["blunders", "big", "--policy", "mistake"], 2, "error: unknown policy 'lsa'; did you mean 'las'?\n"),
        (
            ["blunders", "bigg"],
            2,
            "error: no such command 'bigg'. Did you mean 'big'?\nhint: rota blunders --help\n",
        ),
    ],
)
def test_every_end_has_its_status_and_line(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str], args: list[str], status: int, stderr: str
) -> None:
    assert (run(*args), capsys.readouterr().err) == (status, stderr)


def test_group_without_a_command_shows_its_help(run: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("blunders") == 2

    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("Usage: rota blunders")
    assert "small" in shown.err


def test_our_own_bug_shows_its_trace(run: Callable[..., int]) -> None:
    with pytest.raises(ZeroDivisionError):
        run("blunder", "--policy", "bug")


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_of_a_command_offers_no_completion(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    assert run("blunder", flag) == 0

    help_text = capsys.readouterr().out
    assert "--policy" in help_text
    assert "completion" not in help_text


def test_version(rota: Rota) -> None:
    told = rota("--version")

    assert (told.returncode, told.stdout, told.stderr) == (0, f"rota {__version__}\n", "")


@pytest.mark.slow
@pytest.mark.parametrize("args", [[], ["-h"], ["--help"]], ids=["nothing", "-h", "--help"])
def test_help_lists_every_command(rota: Rota, args: list[str]) -> None:
    told = rota(*args, COLUMNS="120")

    assert told.returncode == 0
    assert "--install-completion" in told.stdout
    for entry in COMMANDS:
        assert f" {entry.name} " in told.stdout
        assert entry.summary in told.stdout


@pytest.mark.parametrize("args", [["--version"], ["--help"]], ids=lambda args: args[0])
def test_start_loads_nothing_heavy(args: list[str]) -> None:
    code = (
        f"import sys; from rota.cli.main import status; status({args!r}); "
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )

    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert told.stderr == "[]\n"


@pytest.mark.slow
def test_completion_of_command_names(rota: Rota) -> None:
    told = rota(_ROTA_COMPLETE="complete_bash", COMP_WORDS="rota s", COMP_CWORD="1")

    assert told.stdout.split() == [
        "sim",
        "schema",
        "shares",
        "slurm",
        "submit",
        "ssh-config",
        "ssh-proxy",
        "sweep",
        "show",
        "search",
    ]


@pytest.mark.parametrize("size", [1, 1_000_000], ids=["at the end", "in the middle"])
def test_reader_who_leaves_is_no_failure_to_report(size: int) -> None:
    code = f"import sys; from rota.cli import main\nmain.__version__ = {size} * 'x'; sys.stdin.read(); main.run()"
    with subprocess.Popen(
        [sys.executable, "-c", code, "--version"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.close()

        assert process.stderr.read() == b""
        assert process.wait() == 141


@pytest.mark.slow
@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_colour_only_where_wanted(no_color: str, coloured: bool) -> None:
    """On a terminal the error's label is red, unless NO_COLOR is set."""
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            [sys.executable, "-c", "from rota.cli.main import run; run()", "nothing-such"],
            env=os.environ | {"NO_COLOR": no_color, "TERM": "xterm"},
            stderr=theirs,
        )
        shown = os.read(ours, 10_000).decode()
    finally:
        os.close(theirs)
        os.close(ours)

    assert "error:" in shown
    assert ("\x1b[" in shown) is coloured


def test_help_takes_less_than_a_tenth_of_a_second() -> None:
    """Of CPU time; the least of several runs, since others compete for the machine."""
    times = []
    for _ in range(10):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", "from rota.cli.main import run; run()", "--help"], capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if times[-1] < 0.1:
            break

    assert min(times) < 0.1
