"""The table of commands.

`rota --help` and completion of command names need names and summaries only; those stand in the table,
so that neither pays for the libraries of commands that do not run.
"""

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


COMMANDS: tuple[CommandEntry, ...] = (
    CommandEntry(
        name="sim",
        target="rota.cli.study.sim:sim",
        summary="Run a trace through one or more policies and compare them.",
        group=CommandGroup.STUDY,
    ),
    CommandEntry(
        name="experiment",
        target="rota.cli.study.experiment:experiment",
        summary="Run a grid of simulations over seeds and loads, with intervals.",
        group=CommandGroup.STUDY,
    ),
    CommandEntry(
        name="fill",
        target="rota.cli.study.fill:fill",
        summary="Fill a cluster with pods of a list, and compare placements.",
        group=CommandGroup.STUDY,
    ),
    CommandEntry(
        name="report",
        target="rota.cli.study.report:report",
        summary="Draw the figures of one or more journals on one page.",
        group=CommandGroup.STUDY,
    ),
    CommandEntry(
        name="trace",
        target="rota.cli.study.trace:app",
        summary="Describe, convert and generate traces.",
        group=CommandGroup.STUDY,
    ),
    CommandEntry(
        name="check",
        target="rota.cli.manager.check:check",
        summary="Report what is wrong with a cluster or job file.",
        group=CommandGroup.STUDY,
    ),
    CommandEntry(
        name="schema",
        target="rota.cli.study.schema:schema",
        summary="Print the JSON schema of a kind of file, for editors.",
        group=CommandGroup.STUDY,
    ),
    CommandEntry(
        name="policies",
        target="rota.cli.study.policies:policies",
        summary="List the policies and their parameters.",
        group=CommandGroup.STUDY,
    ),
    CommandEntry(
        name="profiles",
        target="rota.cli.study.profiles:profiles",
        summary="List published speeds of models on device types.",
        group=CommandGroup.STUDY,
    ),
    CommandEntry(
        name="plan",
        target="rota.cli.plan:app",
        summary="Plan inside a job: operators on devices, stages, parallelism.",
        group=CommandGroup.STUDY,
    ),
    CommandEntry(
        name="net",
        target="rota.cli.net:app",
        summary="Show and measure the network between nodes.",
        group=CommandGroup.STUDY,
    ),
    CommandEntry(
        name="gpus",
        target="rota.cli.manager.gpus:gpus",
        summary="Show what the GPUs do, or their idle hours by user.",
        group=CommandGroup.JOBS,
    ),
    CommandEntry(
        name="up",
        target="rota.cli.manager.up:up",
        summary="Start the manager of this machine.",
        group=CommandGroup.RUN,
    ),
    CommandEntry(
        name="doctor",
        target="rota.cli.manager.doctor:doctor",
        summary="Check this machine, and name what is missing for what.",
        group=CommandGroup.RUN,
    ),
    CommandEntry(
        name="demo",
        target="rota.cli.manager.demo:demo",
        summary="Try a manager on emulated devices.",
        group=CommandGroup.RUN,
    ),
    CommandEntry(
        name="nodes",
        target="rota.cli.manager.nodes:nodes",
        summary="List the nodes and what is free on them.",
        group=CommandGroup.RUN,
    ),
    CommandEntry(
        name="drain",
        target="rota.cli.manager.nodes:drain",
        summary="Keep new jobs from a node.",
        group=CommandGroup.RUN,
    ),
    CommandEntry(
        name="undrain",
        target="rota.cli.manager.nodes:undrain",
        summary="Let a drained node take jobs again.",
        group=CommandGroup.RUN,
    ),
    CommandEntry(
        name="reservations",
        target="rota.cli.accounts.reservations:app",
        summary="List the reservations of nodes, make or cancel them.",
        group=CommandGroup.RUN,
    ),
    CommandEntry(
        name="tenants",
        target="rota.cli.manager.tenants:app",
        summary="List the tenants and their jobs, or change their guarantees.",
        group=CommandGroup.RUN,
    ),
    CommandEntry(
        name="usage",
        target="rota.cli.accounts.usage:app",
        summary="Show used GPU hours, energy and cost, or set prices.",
        group=CommandGroup.JOBS,
    ),
    CommandEntry(
        name="budgets",
        target="rota.cli.accounts.budgets:app",
        summary="List or set the budgets of tenants, and what is used of them.",
        group=CommandGroup.JOBS,
    ),
    CommandEntry(
        name="shares",
        target="rota.cli.accounts.usage:shares",
        summary="Show the fair-share standing of tenants and users.",
        group=CommandGroup.JOBS,
    ),
    CommandEntry(
        name="alerts",
        target="rota.cli.accounts.alerts:app",
        summary="List alerts, acknowledge them, or silence them for a time.",
        group=CommandGroup.RUN,
    ),
    CommandEntry(
        name="truth",
        target="rota.cli.manager.truth:truth",
        summary="Compare forecasts and simulations with what happened.",
        group=CommandGroup.RUN,
    ),
    CommandEntry(
        name="what-if",
        target="rota.cli.manager.truth:what_if",
        summary="Simulate recent jobs under other policies or with more nodes.",
        group=CommandGroup.RUN,
    ),
    CommandEntry(
        name="k8s",
        target="rota.cli.manager.k8s:app",
        summary="Schedule the pods of a Kubernetes cluster.",
        group=CommandGroup.RUN,
    ),
    CommandEntry(
        name="slurm",
        target="rota.cli.slurm.slurm:app",
        summary="Observe a Slurm cluster, or schedule its jobs.",
        group=CommandGroup.RUN,
    ),
    CommandEntry(
        name="login",
        target="rota.cli.manager.login:login",
        summary="Log in to a manager.",
        group=CommandGroup.JOBS,
    ),
    CommandEntry(
        name="logout",
        target="rota.cli.manager.login:logout",
        summary="End the session of `rota login`.",
        group=CommandGroup.JOBS,
    ),
    CommandEntry(
        name="whoami",
        target="rota.cli.manager.login:whoami",
        summary="Show the user that commands act for.",
        group=CommandGroup.JOBS,
    ),
    CommandEntry(
        name="submit",
        target="rota.cli.jobs.submit:submit",
        summary="Submit a job file, a script of Slurm, or a command.",
        group=CommandGroup.JOBS,
    ),
    CommandEntry(
        name="run",
        target="rota.cli.interactive.run:run",
        summary="Run a command as a job in the foreground, with a terminal.",
        group=CommandGroup.JOBS,
    ),
    CommandEntry(
        name="exec",
        target="rota.cli.interactive.run:exec_",
        summary="Run a command or a shell beside a running task.",
        group=CommandGroup.JOBS,
    ),
    CommandEntry(
        name="attach",
        target="rota.cli.interactive.run:attach",
        summary="Come back to the terminal of a job.",
        group=CommandGroup.JOBS,
    ),
    CommandEntry(
        name="port-forward",
        target="rota.cli.interactive.forward:port_forward",
        summary="Reach ports of a running job from this machine.",
        group=CommandGroup.JOBS,
    ),
    CommandEntry(
        name="notebook",
        target="rota.cli.interactive.notebook:notebook",
        summary="Start JupyterLab as a job, behind the manager's login.",
        group=CommandGroup.JOBS,
    ),
    CommandEntry(
        name="tensorboard",
        target="rota.cli.interactive.notebook:tensorboard",
        summary="Start TensorBoard as a job that shows jobs.",
        group=CommandGroup.JOBS,
    ),
    CommandEntry(
        name="sweep",
        target="rota.cli.jobs.sweep:app",
        summary="Search over the parameters of a training, as jobs.",
        group=CommandGroup.JOBS,
    ),
    CommandEntry(
        name="ps",
        target="rota.cli.jobs.ps:ps",
        summary="List jobs.",
        group=CommandGroup.JOBS,
    ),
    CommandEntry(
        name="show",
        target="rota.cli.jobs.show:show",
        summary="Show everything about a job.",
        group=CommandGroup.JOBS,
    ),
    CommandEntry(
        name="logs",
        target="rota.cli.jobs.logs:logs",
        summary="Print the output of a job.",
        group=CommandGroup.JOBS,
    ),
    CommandEntry(
        name="why",
        target="rota.cli.jobs.show:why",
        summary="Explain why a job waits.",
        group=CommandGroup.JOBS,
    ),
    CommandEntry(
        name="cancel",
        target="rota.cli.jobs.act:cancel",
        summary="End jobs in any state.",
        group=CommandGroup.JOBS,
    ),
    CommandEntry(
        name="hold",
        target="rota.cli.jobs.act:hold",
        summary="Keep waiting jobs from starting.",
        group=CommandGroup.JOBS,
    ),
    CommandEntry(
        name="release",
        target="rota.cli.jobs.act:release",
        summary="Let held jobs run.",
        group=CommandGroup.JOBS,
    ),
    CommandEntry(
        name="search",
        target="rota.cli.jobs.search:search",
        summary="Search jobs and their output by words.",
        group=CommandGroup.JOBS,
    ),
    CommandEntry(
        name="data",
        target="rota.cli.jobs.data:app",
        summary="List, add and remove data sets.",
        group=CommandGroup.JOBS,
    ),
    CommandEntry(
        name="template",
        target="rota.cli.jobs.template:app",
        summary="List, show, add and remove templates of jobs.",
        group=CommandGroup.JOBS,
    ),
    CommandEntry(
        name="get",
        target="rota.cli.jobs.get:get",
        summary="List and fetch the files that a job wrote.",
        group=CommandGroup.JOBS,
    ),
    CommandEntry(
        name="update",
        target="rota.cli.jobs.update:update",
        summary="Change a job that waits or is held.",
        group=CommandGroup.JOBS,
    ),
    CommandEntry(
        name="requeue",
        target="rota.cli.jobs.update:requeue",
        summary="Let running jobs wait again; submit ended ones again.",
        group=CommandGroup.JOBS,
    ),
    CommandEntry(
        name="top",
        target="rota.cli.jobs.top:top",
        summary="Show nodes and jobs, refreshed continuously.",
        group=CommandGroup.JOBS,
    ),
    CommandEntry(
        name="profile",
        target="rota.cli.learned.profile:profile",
        summary="Run a training command for a while and measure what it uses.",
        group=CommandGroup.LEARN,
    ),
    CommandEntry(
        name="estimate",
        target="rota.cli.learned.estimate:app",
        summary="Learn from past runs what jobs need.",
        group=CommandGroup.LEARN,
    ),
    CommandEntry(
        name="learn",
        target="rota.cli.learned.learn:app",
        summary="Learn where to place jobs that share servers.",
        group=CommandGroup.LEARN,
    ),
    CommandEntry(
        name="backup",
        target="rota.cli.manager.backup:backup",
        summary="Copy the manager's database while it runs.",
        group=CommandGroup.ADMIN,
    ),
    CommandEntry(
        name="token",
        target="rota.cli.manager.token:app",
        summary="Create, list and revoke tokens.",
        group=CommandGroup.ADMIN,
    ),
    CommandEntry(
        name="users",
        target="rota.cli.manager.users:app",
        summary="Add, change, list and remove local users.",
        group=CommandGroup.ADMIN,
    ),
    CommandEntry(
        name="audit",
        target="rota.cli.manager.audit:app",
        summary="List changes and the users who made them, or verify the log.",
        group=CommandGroup.ADMIN,
    ),
)
