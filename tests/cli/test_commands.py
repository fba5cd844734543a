from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from rota.cli.command_entry import CommandEntry
from rota.cli.commands import COMMANDS

Rota = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.slow
@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_every_command_in_the_table_exists(rota: Rota, entry: CommandEntry) -> None:
    told = rota(entry.name, "--help")

    assert (told.returncode, told.stderr) == (0, "")
    assert f"rota {entry.name} " in told.stdout
