"""Slurm's associations: accounts with their users, fair shares and limits, as `sacctmgr` lists them."""

from __future__ import annotations

from dataclasses import dataclass

from rota.core.model.job import OPPORTUNISTIC
from rota.drivers.slurm.printed.fields import BadField, tres, tres_gpus
from rota.drivers.slurm.printed.records import SlurmReading, SlurmUnreadable

COLUMNS = ("Cluster", "Account", "User", "ParentName", "Share", "GrpTRES", "MaxTRESPU", "QOS")
ACCOUNTING_COLUMNS = (
    *("JobID", "JobName", "User", "Account", "Partition", "QOS", "Submit", "Start", "End", "ElapsedRaw", "State"),
    *("Timelimit", "AllocTRES", "ReqTRES", "NNodes", "NCPUS", "ReqMem"),
)
"""What `sacct` is asked for: all that the reader of traces uses."""
_ROOT = "root"


@dataclass(frozen=True, slots=True, kw_only=True)
class Association:
    """An account, or a user in it."""

    account: str
    user: str = ""
    parent: str = ""
    shares: float = 1.0
    group_gpus: int | None = None
    """GrpTRES=gres/gpu: what the account may hold at once; None: no limit."""
    user_gpus: int | None = None
    """What one user of it may hold at once; None: no limit."""
    qos: tuple[str, ...] = ()


def read_associations(output: str, cluster: str | None = None) -> SlurmReading[Association]:
    """Read `sacctmgr -nP show assoc format=...` with the columns above."""
    reading: SlurmReading[Association] = SlurmReading()
    for line in output.splitlines():
        cells = line.split("|")
        if not line.strip():
            continue
        if len(cells) != len(COLUMNS):
            reading.faults.append(f"association {line[:60]!r}: {len(cells)} fields, not {len(COLUMNS)}")
            continue
        values = dict(zip(COLUMNS, cells, strict=True))
        if cluster is not None and values["Cluster"] != cluster:
            continue
        try:
            reading.found.append(_association(values))
        except BadField as error:
            reading.faults.append(f"association {line[:60]!r}: {error}")
    if reading.faults and not reading.found:
        raise SlurmUnreadable(f"Slurm's associations can't be understood: {reading.faults[0]}")
    return reading


def _association(values: dict[str, str]) -> Association:
    share = values["Share"]
    if share not in ("", "parent") and not share.isdecimal():
        raise BadField(f"share {share!r} is not a number")
    if not values["Account"]:
        raise BadField("no account")
    return Association(
        account=values["Account"],
        user=values["User"],
        parent="" if values["ParentName"] == _ROOT else values["ParentName"],
        shares=float(share) if share.isdecimal() else 1.0,
        group_gpus=_gpus(values["GrpTRES"]),
        user_gpus=_gpus(values["MaxTRESPU"]),
        qos=tuple(name for name in values["QOS"].split(",") if name),
    )


def _gpus(value: str) -> int | None:
    resources = tres(value)
    if not any(name.partition(":")[0] == "gres/gpu" for name in resources):
        return None
    return tres_gpus(resources).count


QOS_COLUMNS = ("Name", "Priority", "UsageFactor")


def read_qos(output: str) -> dict[str, int]:
    """Read `sacctmgr -nP show qos` with these columns: the priority of each quality of service.

    One whose use costs nothing (UsageFactor=0) is for jobs without a guarantee, which have the lowest priority.
    """
    found = {}
    for line in output.splitlines():
        name, _, rest = line.partition("|")
        priority, _, factor = rest.partition("|")
        if name and priority.isdecimal():
            found[name] = OPPORTUNISTIC if factor and not factor.strip("0.") else int(priority)
    return found
