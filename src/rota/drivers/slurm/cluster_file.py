"""Slurm's nodes and accounts as the values of a cluster file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rota.drivers.slurm.printed.accounts import Association
from rota.drivers.slurm.printed.fields import MEBI
from rota.drivers.slurm.printed.records import SlurmNode
from rota.drivers.slurm.translate import UNTYPED, tenants_of

Json = dict[str, Any]


def cluster_values(nodes: Sequence[SlurmNode], associations: Sequence[Association] = ()) -> Json:
    """Return a cluster file: nodes that are up, and accounts with their limits."""
    values: Json = {
        "nodes": [
            {
                "name": node.name,
                "type": node.gpus.type or UNTYPED,
                "gpus": node.gpus.count,
                "cpus": node.cpus,
                "memory": f"{node.memory_bytes // MEBI}Mi",
                **({"partitions": list(node.partitions)} if node.partitions else {}),
            }
            for node in nodes
            if not node.is_down
        ]
    }
    plan = tenants_of(associations)
    if plan is not None:
        values["tenants"] = {
            str(name): {
                **({"parent": str(share.parent)} if share.parent else {}),
                **({"limit": {str(kind): most for kind, most in share.limit.items()}} if share.limit else {}),
                **({"per_user": share.per_user} if share.per_user is not None else {}),
                "weight": share.weight,
            }
            for name, share in plan.shares.items()
        }
    return values
