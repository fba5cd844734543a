"""`rota slurm`: Rota beside Slurm as a read-only twin, or in charge of partitions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rota.api.log import LogFormat, LogLevel, set_up
from rota.cli.completion import policy_names
from rota.cli.terminal import echo
from rota.core.errors import RotaError

if TYPE_CHECKING:
    from rota.drivers.slurm.scheduler_config import SlurmPolicy

app = typer.Typer(help="Observe a Slurm cluster, or schedule its jobs.", no_args_is_help=True)
Config = Annotated[
    Path | None,
    typer.Option(
        "--slurm-conf",
        help="Slurm's configuration file, where it is not in its usual place.",
        metavar="FILE",
        exists=True,
    ),
]
Data = Annotated[Path | None, typer.Option("--data", help="Where the journal and records are.", metavar="DIR")]
Host = Annotated[str, typer.Option("--host", help="The address to answer at.", metavar="ADDRESS")]
Port = Annotated[int, typer.Option("--port", help="The port to answer at; 0 takes a free one.", min=0, max=65535)]
Every = Annotated[str, typer.Option("--every", help="Time between two looks at Slurm's queue.", metavar="TIME")]
RequireToken = Annotated[bool, typer.Option("--require-token", help="Ask for tokens on this machine too.")]
LogFormatOption = Annotated[LogFormat, typer.Option("--log-format", help="How to log.")]
LogLevelOption = Annotated[LogLevel, typer.Option("--log-level", help="How much to log.")]
SHORTEST_S = 0.1


@app.command("observe")
def observe(
    slurm_conf: Config = None,
    policy: Annotated[
        str,
        typer.Option(
            "--policy", help="What forecasts assume of Slurm's scheduler.", metavar="NAME", autocompletion=policy_names
        ),
    ] = "easy",
    rest: Annotated[
        str | None,
        typer.Option(
            "--rest",
            help="Read from slurmrestd, not by commands: unix:/path or http://host:port; the token is SLURM_JWT.",
            metavar="ADDRESS",
        ),
    ] = None,
    rest_token: Annotated[
        Path | None,
        typer.Option(
            "--rest-token",
            help="A file with slurmrestd's token, as `scontrol token` prints it; it is read again for each request.",
            metavar="FILE",
        ),
    ] = None,
    history: Annotated[
        str,
        typer.Option(
            "--history",
            help="Since when sacct's accounting tells forecasts what jobs took, as sacct takes it; `none` for not.",
            metavar="TIME",
        ),
    ] = "now-14days",
    every: Every = "5s",
    data: Data = None,
    host: Host = "127.0.0.1",
    port: Port = 7650,
    require_token: RequireToken = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Keep a twin of a running Slurm cluster; nothing is written to Slurm. Runs until it is told to stop (Ctrl-C).

    Examples:

      rota slurm observe

      rota slurm observe --every 30s --data /var/lib/rota-slurm
    """
    how = (log_format, log_level)
    if rest_token is not None and rest is None:
        raise RotaError("--rest-token is for slurmrestd; give its address with --rest")
    tenants, from_rest = ("none", None), None if rest is None else (rest, rest_token)
    _serve(slurm_conf, policy, None, tenants, every, data, host, port, require_token, how, None, from_rest, history)


@app.command("run")
def run(
    slurm_conf: Config = None,
    policy: Annotated[
        str, typer.Option("--policy", help="The policy that decides.", metavar="NAME", autocompletion=policy_names)
    ] = "easy",
    placement: Annotated[
        str | None, typer.Option("--placement", help="How devices are chosen; by default as the policy likes.")
    ] = None,
    tenancy: Annotated[
        str,
        typer.Option("--tenancy", help="`quota` enforces the GrpTRES of Slurm's accounts; `none` leaves it; `cells`."),
    ] = "none",
    guarantees: Annotated[
        Path | None,
        typer.Option(
            "--guarantees",
            help="A HiveD file for `cells`, or a cluster file with tenants for `quota`; accounts are the tenants.",
            metavar="FILE",
            exists=True,
        ),
    ] = None,
    every: Every = "2s",
    release_after: Annotated[
        str,
        typer.Option("--release-after", help="Held jobs are released once Rota was away that long; 0 for never."),
    ] = "2m",
    data: Data = None,
    host: Host = "127.0.0.1",
    port: Port = 7650,
    require_token: RequireToken = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Decide about the jobs that job_submit.lua holds; Slurm carries out. Runs until it is told to stop (Ctrl-C).

    Examples:

      rota slurm run --policy easy

      rota slurm run --policy fair-share --release-after 5m
    """
    how = (log_format, log_level)
    tenants = (tenancy, guarantees)
    _serve(slurm_conf, policy, placement, tenants, every, data, host, port, require_token, how, release_after)


@app.command("watchdog")
def watchdog(
    slurm_conf: Config = None,
    after: Annotated[
        str, typer.Option("--after", help="How long Rota may be away before held jobs are released.", metavar="TIME")
    ] = "2m",
    data: Data = None,
    once: Annotated[bool, typer.Option("--once", help="Release all jobs that Rota holds now, and end.")] = False,
) -> None:
    """Release held jobs when Rota is away; `rota slurm run` starts one, and a service may run another.

    Examples:

      rota slurm watchdog --after 5m

      rota slurm watchdog --once
    """
    import asyncio

    from rota.drivers.slurm.commands import SlurmCommands
    from rota.drivers.slurm.watchdog import Heartbeat, release_all, watch
    from rota.files.quantities import parse_duration

    commands = SlurmCommands(slurm_conf)
    if once:
        released = asyncio.run(release_all(commands))
        echo(f"released {len(released)} jobs")
        return
    home = _home(data)
    if not Heartbeat(home).path.exists():
        raise RotaError(f"no `rota slurm run` has used {home}; name the folder of the one to watch with --data")
    asyncio.run(watch(home, commands, parse_duration(after), echo))


@app.command("script")
def script(
    partition: Annotated[
        list[str], typer.Option("--partition", help="A partition whose jobs Rota decides about; repeat it for more.")
    ],
) -> None:
    """Print job_submit.lua for slurmctld: it holds the jobs of partitions until Rota releases them.

    Examples:

      rota slurm script --partition gpu > /etc/slurm/job_submit.lua
    """
    from rota.drivers.slurm.submit_script import submit_script

    echo(submit_script(partition), nl=False, lines=True)


@app.command("accounting")
def accounting(
    out: Annotated[Path, typer.Argument(help="The trace to write.", metavar="FILE")],
    since: Annotated[
        str, typer.Option("--since", help="The first submission, as sacct takes it.", metavar="TIME")
    ] = "now-14days",
    scenario: Annotated[
        Path | None,
        typer.Option(
            "--scenario",
            help="Also write a scenario: this trace, Slurm's nodes (in a file beside it) and its scheduler as policy.",
            metavar="FILE",
        ),
    ] = None,
    slurm_conf: Config = None,
) -> None:
    """Write the accounting of the last weeks as a trace, for `rota sim` to replay under other policies and limits.

    Examples:

      rota slurm accounting weeks.txt --since now-28days --scenario weeks.yaml

      rota sim --scenario weeks.yaml

      rota sim --scenario weeks.yaml --policy srtf --policy fair-share
    """
    import asyncio

    from rota.drivers.slurm.commands import SlurmCommands
    from rota.drivers.slurm.printed.accounts import ACCOUNTING_COLUMNS
    from rota.drivers.slurm.replay import write_scenario

    commands = SlurmCommands(slurm_conf, within_s=600.0)
    output = asyncio.run(commands.accounting(since, ACCOUNTING_COLUMNS))
    out.write_bytes(output)
    jobs = max(len(output.splitlines()) - 1, 0)
    echo(f"{out}: {jobs} jobs")
    if scenario is not None:
        found = asyncio.run(write_scenario(commands, out, scenario))
        echo(f"{scenario}: {found.policy} --placement {found.placement}")
        _tell_left_out(found)


@app.command("policy")
def policy(
    file: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="What `scontrol show config` printed, or slurm.conf; without it, the running Slurm is asked.",
            metavar="FILE",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every parameter with its meaning, as JSON.")] = False,
    slurm_conf: Config = None,
) -> None:
    """Print the policy and placement that simulate Slurm's scheduler, from its parameters.

    What each parameter becomes, and what is left out, is said on stderr.

    Examples:

      rota slurm policy

      rota sim --trace weeks.txt --cluster cluster.yaml $(rota slurm policy)

      rota slurm policy --from /etc/slurm/slurm.conf --json
    """
    import asyncio
    import json
    from dataclasses import asdict

    from rota.drivers.slurm.commands import SlurmCommands
    from rota.drivers.slurm.scheduler_config import policy_of, read_config

    if file is None:
        text = asyncio.run(SlurmCommands(slurm_conf).config())
    else:
        text = file.read_text(encoding="utf-8", errors="replace")
    found = policy_of(read_config(text, "Slurm's configuration" if file is None else str(file)))
    if as_json:
        echo(json.dumps(asdict(found), indent=2), lines=True)
        return
    echo(f"--policy {found.policy} --placement {found.placement}")
    for line in found.mirrored:
        echo(f"{line.name}{' = ' if line.value else ''}{line.value}: {line.becomes}; {line.meaning}", err=True)
    _tell_left_out(found)


@app.command("cluster")
def cluster(slurm_conf: Config = None) -> None:
    """Print the nodes and accounts of Slurm as a cluster file, for simulations.

    Examples:

      rota slurm cluster > cluster.yaml
    """
    import asyncio

    import yaml

    from rota.drivers.slurm.cluster_file import cluster_values
    from rota.drivers.slurm.commands import SlurmCommands

    async def read() -> dict[str, object]:
        commands = SlurmCommands(slurm_conf)
        commands.use(await commands.settings())
        return cluster_values((await commands.nodes()).found, (await commands.associations()).found)

    echo(yaml.safe_dump(asyncio.run(read()), sort_keys=False), nl=False, lines=True)


def _tell_left_out(found: SlurmPolicy) -> None:
    """Name what a simulation of Slurm leaves out."""
    for line in found.left_out:
        echo(f"left out: {line.name} = {line.value}: {line.meaning}", err=True)


def _home(data: Path | None) -> Path:
    from rota.sdk.place import data_folder

    return (data or data_folder() / "slurm").absolute()


def _serve(
    config: Path | None,
    policy: str,
    placement: str | None,
    tenants: tuple[str, Path | None],
    every: str,
    data: Path | None,
    host: str,
    port: int,
    require_token: bool,
    logs: tuple[LogFormat, LogLevel],
    release_after: str | None,
    rest: tuple[str, Path | None] | None = None,
    history: str = "none",
) -> None:
    """Check everything that can be checked here, then run."""
    from rota.api.slurm.serve_slurm import SlurmOptions, serve_slurm
    from rota.drivers.slurm.driver import CONTRACT
    from rota.drivers.slurm.watchdog import start_beside
    from rota.files.quantities import parse_duration
    from rota.live.slurm.slurm_loop import Pace
    from rota.policies import find_policy
    from rota.tenancy import refuse_unknown
    from rota.web.gate import Gate

    tenancy, guarantees = tenants
    refuse_unknown(tenancy)
    if tenancy == "cells" and guarantees is None:
        raise RotaError("--tenancy is 'cells', but there are no cells; give a HiveD file with --guarantees")
    declared, options = find_policy(policy)
    if release_after is not None:
        declared.refuse_driver(options, CONTRACT, live=True)
    every_s = parse_duration(every)
    if every_s < SHORTEST_S:
        raise RotaError(f"--every is {every!r}; it must be {SHORTEST_S:g} s or more")
    home = _home(data)
    set_up(*logs)
    say = (lambda line: echo(line, err=True)) if logs[0] is LogFormat.TEXT else (lambda line: None)
    if release_after is not None and (after_s := parse_duration(release_after)):
        start_beside(home, config, after_s)
    serve_slurm(
        SlurmOptions(
            home=home,
            decides=release_after is not None,
            config=config,
            rest=rest,
            history=None if history == "none" else history,
            policy=policy,
            placement=placement,
            tenancy=tenancy,
            guarantees=guarantees,
            pace=Pace(jobs_s=every_s, nodes_s=max(every_s, 10.0) if every_s >= 1 else every_s * 5),
            host=host,
            port=port,
            require_token=require_token,
            pages=Gate,
        ),
        say,
    )
