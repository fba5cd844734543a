"""A scenario that replays Slurm's accounting under Slurm's own scheduler, and then under others."""

from __future__ import annotations

from pathlib import Path

import yaml

from rota.drivers.slurm.cluster_file import cluster_values
from rota.drivers.slurm.commands import SlurmCommands
from rota.drivers.slurm.scheduler_config import SlurmPolicy, policy_of, read_config


async def write_scenario(commands: SlurmCommands, trace: Path, out: Path) -> SlurmPolicy:
    """Write a scenario of a trace, and Slurm's nodes and accounts as a cluster file beside it; return its policy."""
    found = policy_of(read_config(await commands.config(), "Slurm's configuration"))
    commands.use(await commands.settings())
    values = cluster_values((await commands.nodes()).found, (await commands.associations()).found)
    cluster = out.with_name(f"{out.stem}-cluster.yaml")
    cluster.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    here, folder = trace.resolve(), out.resolve().parent
    scenario = {
        "trace": str(here.relative_to(folder)) if here.is_relative_to(folder) else str(here),
        "cluster": cluster.name,
        "policy": [found.policy],
        "placement": found.placement,
    }
    out.write_text(yaml.safe_dump(scenario, sort_keys=False), encoding="utf-8")
    return found
