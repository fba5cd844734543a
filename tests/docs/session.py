"""The examples of a page as a reader tries them: in one folder, with the manager that the page starts."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from managers import Manager
from rota.cli.main import status

_FIRST_FAILURE = """
for part in "${PIPESTATUS[@]}"; do [ "$part" = 0 ] || [ "$part" = 141 ] || exit "$part"; done"""
"""The status of the first part of a pipe that failed, but for one whose reader had read enough (SIGPIPE)."""


class Session:
    """A folder, and a manager once the page has started one; it ends with the session."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._manager: Manager | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._manager is not None:
            self._manager.clean_up()

    def start(self, *options: str) -> None:
        """Start the manager of the page, on a port of its own; it knows no tenants but those of the page."""
        home = self.folder / ".manager"
        home.mkdir()
        self._manager = Manager(home, "--tenants", "default", *options)
        self._manager.start()

    def run(self, command: str) -> tuple[int, list[str]]:
        """Run a command as a shell does; return its status and output lines."""
        if self._manager is not None:
            return _in_shell(command, self.folder, self._manager.env)
        return run(command, self.folder)


def run(command: str, folder: Path) -> tuple[int, list[str]]:
    """Run a command as a shell does; return its status and output lines. A plain `rota` runs in this process."""
    words = shlex.split(command)
    if words[0] != "rota" or set(command) & set("|<>&;$*"):
        return _in_shell(command, folder, os.environ)
    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = status(words[1:])
    return code, printed.getvalue().splitlines()


def _in_shell(command: str, folder: Path, env: Mapping[str, str]) -> tuple[int, list[str]]:
    path = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", "")])
    done = subprocess.run(
        ["bash", "-c", command + _FIRST_FAILURE],
        cwd=folder,
        env={**env, "PATH": path, "PYTHONUNBUFFERED": "1"},  # stdout and stderr in the order of their writing
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    return done.returncode, done.stdout.splitlines()
