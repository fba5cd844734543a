"""What the table of commands says of each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class CommandGroup(Enum):
    """The groups of commands; the headings of `rota --help`."""

    STUDY = "Study"
    RUN = "Run"
    JOBS = "Jobs"
    LEARN = "Learn"
    ADMIN = "Admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEntry:
    """One command: where it is defined, and its line in the list of commands.

    `target` is `module:attribute`; the attribute is a function (one command) or a Typer app (several).
    """

    name: str
    target: str
    summary: str
    group: CommandGroup
