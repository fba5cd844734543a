"""The table of commands, and the group that loads a command's module only when it is called.

`rota --help` and completion of command names need names and summaries only; those stand in the table,
so that neither pays for the libraries of commands that do not run.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from enum import Enum
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command


class Group(Enum):
    """What a command is for; the headings of `rota --help`."""

    STUDY = "Study"
    RUN = "Run"
    JOBS = "Jobs"
    LEARN = "Learn"
    ADMIN = "Admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One command: where it lives and what the list of commands says of it.

    `target` is `module:attribute`; the attribute is a function (one command) or a Typer app (several).
    """

    name: str
    target: str
    summary: str
    group: Group


COMMANDS: tuple[Entry, ...] = (
    Entry(
        name="sim",
        target="rota.cli.sim:sim",
        summary="Run a trace through one or more policies and compare them.",
        group=Group.STUDY,
    ),
    Entry(
        name="report",
        target="rota.cli.report:report",
        summary="Draw the figures of one or more journals on one page.",
        group=Group.STUDY,
    ),
    Entry(
        name="trace",
        target="rota.cli.trace:app",
        summary="Describe, convert and generate traces.",
        group=Group.STUDY,
    ),
    Entry(
        name="check",
        target="rota.cli.check:check",
        summary="Say what is wrong with a cluster or job file.",
        group=Group.STUDY,
    ),
    Entry(
        name="policies",
        target="rota.cli.policies:policies",
        summary="List the policies and their parameters.",
        group=Group.STUDY,
    ),
    Entry(
        name="profiles",
        target="rota.cli.profiles:profiles",
        summary="List published speeds of models on device types.",
        group=Group.STUDY,
    ),
    Entry(
        name="plan",
        target="rota.cli.plan:app",
        summary="Plan inside a job: operators on devices, stages, parallelism.",
        group=Group.STUDY,
    ),
    Entry(
        name="up",
        target="rota.cli.up:up",
        summary="Start the manager of this machine.",
        group=Group.RUN,
    ),
    Entry(
        name="demo",
        target="rota.cli.demo:demo",
        summary="See a manager at work on pretend devices.",
        group=Group.RUN,
    ),
    Entry(
        name="nodes",
        target="rota.cli.nodes:nodes",
        summary="List the nodes and what is free on them.",
        group=Group.RUN,
    ),
    Entry(
        name="drain",
        target="rota.cli.nodes:drain",
        summary="Let nothing new start on a node.",
        group=Group.RUN,
    ),
    Entry(
        name="undrain",
        target="rota.cli.nodes:undrain",
        summary="Let a drained node take jobs again.",
        group=Group.RUN,
    ),
    Entry(
        name="tenants",
        target="rota.cli.tenants:app",
        summary="List the tenants and their jobs, or change what they are promised.",
        group=Group.RUN,
    ),
    Entry(
        name="k8s",
        target="rota.cli.k8s:app",
        summary="Schedule the pods of a Kubernetes cluster.",
        group=Group.RUN,
    ),
    Entry(
        name="submit",
        target="rota.cli.submit:submit",
        summary="Submit a job file, or a command.",
        group=Group.JOBS,
    ),
    Entry(
        name="ps",
        target="rota.cli.ps:ps",
        summary="List jobs.",
        group=Group.JOBS,
    ),
    Entry(
        name="show",
        target="rota.cli.show:show",
        summary="Show everything about a job.",
        group=Group.JOBS,
    ),
    Entry(
        name="logs",
        target="rota.cli.logs:logs",
        summary="Print what a job says.",
        group=Group.JOBS,
    ),
    Entry(
        name="why",
        target="rota.cli.show:why",
        summary="Say why a job waits.",
        group=Group.JOBS,
    ),
    Entry(
        name="cancel",
        target="rota.cli.act:cancel",
        summary="End jobs, whatever they are doing.",
        group=Group.JOBS,
    ),
    Entry(
        name="hold",
        target="rota.cli.act:hold",
        summary="Keep waiting jobs from starting.",
        group=Group.JOBS,
    ),
    Entry(
        name="release",
        target="rota.cli.act:release",
        summary="Let held jobs run.",
        group=Group.JOBS,
    ),
    Entry(
        name="top",
        target="rota.cli.top:top",
        summary="Show nodes and jobs as they are, again and again.",
        group=Group.JOBS,
    ),
    Entry(
        name="profile",
        target="rota.cli.profile:profile",
        summary="Run a training command for a while and see what it uses.",
        group=Group.LEARN,
    ),
    Entry(
        name="estimate",
        target="rota.cli.estimate:app",
        summary="Learn from past runs what jobs need.",
        group=Group.LEARN,
    ),
    Entry(
        name="learn",
        target="rota.cli.learn:app",
        summary="Learn where to place jobs that share servers.",
        group=Group.LEARN,
    ),
    Entry(
        name="backup",
        target="rota.cli.backup:backup",
        summary="Copy the manager's database while it runs.",
        group=Group.ADMIN,
    ),
    Entry(
        name="token",
        target="rota.cli.token:app",
        summary="Create, list and revoke tokens.",
        group=Group.ADMIN,
    ),
    Entry(
        name="audit",
        target="rota.cli.audit:audit",
        summary="List who changed what.",
        group=Group.ADMIN,
    ),
)


_COMPLETION_PARAMS = frozenset({"install_completion", "show_completion"})


def load(entry: Entry) -> TyperCommand | TyperGroup:
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
    """A group whose members are the table's entries: listed from the table, loaded when one is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._entries = {entry.name: entry for entry in COMMANDS}
        for entry in COMMANDS:
            self.add_command(TyperCommand(name=entry.name, help=entry.summary))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands into the help, by what they are for."""
        for group in Group:
            rows = [(entry.name, entry.summary) for entry in self._entries.values() if entry.group is group]
            if rows:
                with formatter.section(group.value):
                    formatter.write_dl(rows)

    def resolve_command(
        self, ctx: Any, args: list[str]
    ) -> tuple[str | None, TyperCommand | TyperGroup | None, list[str]]:
        """The command that `args` name, now loaded for real."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, load(self._entries[name]) if name else None, rest
