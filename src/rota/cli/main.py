"""The entry point of `rota`: finds the command, runs it, and turns its end into a message and a status.

Every way to fail leaves through here, so that all commands fail alike: one line on stderr, status 2 for a
user's mistake, 1 for a failure, 130 for Ctrl-C, 141 where the reader of the output left.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.main import get_command

from rota import __version__
from rota.cli.extras import explained
from rota.cli.lazy_group import LazyGroup
from rota.cli.terminal import echo
from rota.core.errors import BuiltInFault, RotaError, Unavailable
from rota.core.neutral_text import neutral

FAILURE = 1
MISTAKE = 2
INTERRUPTED = 130
READER_LEFT = 141
"""What a shell reports for SIGPIPE, as after `rota sim ... | head`."""

app = typer.Typer(
    name="rota",
    cls=LazyGroup,
    help="Schedule deep-learning jobs: in a simulator, on one machine, on Kubernetes.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: loading Rich would double the time that `rota --help` takes
)


def _print_version(wanted: bool) -> None:
    if wanted:
        echo(f"rota {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _rota(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
    cacert: Annotated[
        str | None,
        typer.Option("--cacert", help="Certificates to trust, where the manager's is not public.", metavar="FILE"),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option("--server", help="The manager's address; by default the one on this machine.", metavar="URL"),
    ] = None,
    context: Annotated[
        str | None,
        typer.Option("--context", help="A Kubernetes cluster, by its context in the kubeconfig.", metavar="NAME"),
    ] = None,
    slurm: Annotated[bool, typer.Option("--slurm", help="The Slurm cluster of this machine.")] = False,
) -> None:
    if server is not None and context is not None:
        raise RotaError(
            f"--server {server} is a manager and --context {context} a Kubernetes cluster; give one of them"
        )
    if slurm and context is not None:
        raise RotaError(f"--slurm is the cluster of this machine and --context {context} another; give one of them")
    if slurm:
        os.environ["ROTA_SLURM"] = "1"
    if server is not None:  # as after the command: it wins over both variables
        os.environ["ROTA_SERVER"] = server
        os.environ.pop("ROTA_CONTEXT", None)
    if context is not None:
        os.environ["ROTA_CONTEXT"] = context
    if cacert is not None:
        os.environ["ROTA_CACERT"] = cacert
    if ctx.invoked_subcommand is None:
        echo(ctx.get_help(), nl=False, lines=True)


def run() -> None:
    """The console entry point."""
    code = status(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_output()
        code = code or READER_LEFT
    sys.exit(code)


def status(args: Sequence[str]) -> int:
    """Run `rota` with these arguments and return its exit status."""
    try:
        outcome = get_command(app).main(args=list(args), prog_name="rota", standalone_mode=False)
    except RotaError as error:
        return _complain(str(error), MISTAKE)
    except (BuiltInFault, Unavailable) as error:
        return _complain(str(error), FAILURE)
    except typer.TyperException as error:
        return _complain_of_usage(error)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        return READER_LEFT
    except ModuleNotFoundError as error:
        if (line := explained(error)) is None:
            raise
        return _complain(line, MISTAKE)
    except OSError as error:
        if error.filename is None:
            raise
        return _complain(f"{error.filename}: {error.strerror}", FAILURE)
    return outcome if isinstance(outcome, int) else 0


def _complain(message: str, code: int) -> int:
    label = "error:"
    if sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
        label = typer.style(label, fg="red", bold=True)
    typer.echo(f"{label} {neutral(' '.join(message.split()))}", err=True)
    return code


def _complain_of_usage(error: typer.TyperException) -> int:
    message = error.format_message().rstrip(".")
    ctx = getattr(error, "ctx", None)
    if message.startswith("Usage:"):  # a group called without a command brings its help as the message
        echo(message, err=True, lines=True)
    else:
        _complain(message[:1].lower() + message[1:], MISTAKE)
        if ctx is not None:
            echo(f"hint: {ctx.command_path} --help", err=True)
    return int(getattr(error, "exit_code", MISTAKE))


def _forget_output() -> None:
    """Send what is still buffered nowhere: the reader of our output has left."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
