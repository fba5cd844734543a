"""The group of commands of `rota`, which loads a command's module only when that is called."""

from __future__ import annotations

import importlib
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from rota.cli import commands
from rota.cli.command_entry import CommandEntry, CommandGroup
from rota.cli.repeated import refuse_repeated

_OF_STUDIES = frozenset({"sim", "experiment", "report"})
"""Commands whose options of one value users repeat to compare values."""
_COMPLETION_PARAMS = frozenset({"install_completion", "show_completion"})


def load(entry: CommandEntry) -> TyperCommand | TyperGroup:
    """Import the entry's module and make its command."""
    module, _, attribute = entry.target.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    if isinstance(found, typer.Typer):
        app = found
    else:
        app = typer.Typer()
        app.command(entry.name)(found)
    app.rich_markup_mode = None  # help looks the same at every level
    command = get_command(app)
    assert isinstance(command, TyperCommand | TyperGroup)
    command.name = entry.name
    # Typer offers to install completion on every app; that belongs to `rota` itself only.
    command.params = [param for param in command.params if param.name not in _COMPLETION_PARAMS]
    return command


class LazyGroup(TyperGroup):
    """A group of the table's entries, each loaded when it is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._entries = {entry.name: entry for entry in commands.COMMANDS}
        for entry in commands.COMMANDS:
            self.add_command(TyperCommand(name=entry.name, help=entry.summary))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands into the help, by group."""
        for group in CommandGroup:
            rows = [(entry.name, entry.summary) for entry in self._entries.values() if entry.group is group]
            if rows:
                with formatter.section(group.value):
                    formatter.write_dl(rows)

    def resolve_command(
        self, ctx: Any, args: list[str]
    ) -> tuple[str | None, TyperCommand | TyperGroup | None, list[str]]:
        """The command that `args` name, loaded."""
        name, _, rest = super().resolve_command(ctx, args)
        if not name:
            return name, None, rest
        command = load(self._entries[name])
        if name in _OF_STUDIES:
            refuse_repeated(command, rest)
        return name, command, rest
