"""Slurm's scheduler as a policy of Rota: what `scontrol show config` or slurm.conf says of it, parameter by parameter.

Slurm has two schedulers. One starts jobs in order of priority until one doesn't fit. The other, sched/backfill, goes
on from there at intervals: a job starts where it would not be in the way of a reservation, and otherwise gets one, of
whole nodes, if it is expected to start within a window. Both are one policy here, `easy` with reservations of nodes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from rota.core.errors import RotaError

_ABSENT = frozenset({"", "(null)", "none", "n/a"})
_MOST_S = {"bf_window": 30 * 1440, "bf_resolution": 3600, "bf_interval": 10800, "bf_max_job_test": 1_000_000}
"""The largest values that Slurm takes; it uses its default in place of others."""
_GROUP_S = 30
"""Seconds within which running jobs are first taken to have ended together (`_will_run_test` of select/cons_tres)."""
_WORK = frozenset(
    {
        *("batch_sched_delay", "bf_continue", "bf_max_time", "bf_yield_interval", "bf_yield_rpc_cnt", "bf_yield_sleep"),
        *("build_queue_timeout", "max_rpc_cnt", "max_sched_time", "max_script_size", "no_backup_scheduling"),
        *("nohold_on_prolog_fail", "requeue_delay", "sched_interval", "sched_max_job_start", "sched_min_interval"),
        *("bf_node_space_size", "defer", "defer_batch", "default_queue_depth", "partition_job_depth"),
        *("salloc_wait_nodes", "sbatch_wait_nodes", "max_switch_wait", "max_array_tasks", "ff_wait", "ff_wait_value"),
    }
)
"""Parameters that limit the work of slurmctld, and otherwise change nothing about which job starts where."""
_WEIGHTS = (
    *("PriorityWeightAge", "PriorityWeightAssoc", "PriorityWeightFairShare", "PriorityWeightJobSize"),
    *("PriorityWeightPartition", "PriorityWeightQOS", "PriorityWeightTRES"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One parameter of Slurm and what becomes of it."""

    name: str
    value: str
    meaning: str
    becomes: str = ""
    """The parameter of the policy, or the placement; empty where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmPolicy:
    """What simulates Slurm's scheduler, and what of its configuration that leaves out."""

    policy: str
    placement: str
    mirrored: tuple[Line, ...]
    left_out: tuple[Line, ...]


def read_config(text: str, source: str) -> dict[str, str]:
    """Read `NAME = VALUE` lines, as `scontrol show config` prints them and slurm.conf has them; names in lower case."""
    found: dict[str, str] = {}
    for raw in re.sub(r"\\\n", "", text).splitlines():
        line = re.sub(r"(?<!\\)#.*", "", raw).strip()
        name, equals, value = line.partition("=")
        name = name.strip()
        if equals and re.fullmatch(r"[A-Za-z_]+(\[\d+\])?", name):
            value = value.strip()
            found[name.lower()] = "" if value.lower() in _ABSENT else value
    if "clustername" not in found and "schedulertype" not in found and "schedulerparameters" not in found:
        raise RotaError(
            f"{source} says nothing of Slurm's scheduler; give what `scontrol show config` prints, or slurm.conf"
        )
    return found


def policy_of(config: Mapping[str, str]) -> SlurmPolicy:
    """Return the policy that does what a configuration makes Slurm do, and name what it leaves out."""
    parameters = _parameters(config.get("schedulerparameters", ""))
    kind = config.get("schedulertype") or "sched/backfill"
    lines: list[Line] = []
    if kind == "sched/backfill" and parameters.get("bf_interval") != "-1":
        policy = _planned(parameters, lines)
    elif kind in ("sched/backfill", "sched/builtin"):
        name, value = ("SchedulerType", kind) if kind == "sched/builtin" else ("bf_interval", "-1")
        lines.append(Line(name=name, value=value, meaning="no job passes one that does not fit", becomes="fifo"))
        policy = "fifo"
    else:
        raise RotaError(f"SchedulerType is {kind!r}; Rota knows sched/backfill and sched/builtin")
    placement = _placement(config, lines)
    left_out = [*_left_out(parameters, policy), *_order(config), *_nodes(config)]
    return SlurmPolicy(policy=policy, placement=placement, mirrored=tuple(lines), left_out=tuple(left_out))


def _planned(parameters: Mapping[str, str], lines: list[Line]) -> str:
    """The policy that does what sched/backfill does with these parameters."""
    options = []

    def mirror(name: str, default: int, key: str, meaning: str, *, unit: int = 1, least: int = 1) -> None:
        value = _number(parameters, name, default, least)
        options.append(f"{key}={value * unit}")
        shown = f"{value}" if name in parameters else f"{value} (default)"
        lines.append(Line(name=name, value=shown, meaning=meaning, becomes=options[-1]))

    mirror(
        "bf_job_part_count_reserve",
        0,
        "reserve",
        "how many waiting jobs get a reservation; 0: every one",
        least=0,
    )
    mirror("bf_window", 1440, "window_s", "minutes; a job that can't start so soon gets no reservation", unit=60)
    mirror("bf_resolution", 60, "resolution_s", "seconds to which the times of reservations are rounded down")
    mirror("bf_interval", 30, "interval_s", "seconds between two looks for jobs that can pass others")
    options.append(f"group_s={_GROUP_S}")
    lines.append(
        Line(
            name="bf_window_linear",
            value="not set",
            meaning="seconds; running jobs count as ended in groups, each twice as long as the one before",
            becomes=options[-1],
        )
    )
    mirror("bf_max_job_test", 500, "depth", "how many waiting jobs are considered at most")
    options.append("limits=true")
    lines.append(
        Line(
            name="--time",
            value="",
            meaning="Slurm expects jobs to run for their time limit; simulated jobs' true run times are not used",
            becomes=options[-1],
        )
    )
    return f"easy:{','.join(options)}"


def _parameters(text: str) -> dict[str, str]:
    found = {}
    for each in filter(None, text.split(",")):
        name, _, value = each.strip().partition("=")
        found[name.lower()] = value
    return found


def _number(parameters: Mapping[str, str], name: str, default: int, least: int) -> int:
    """A whole number; Slurm's default where it is not given, or out of Slurm's bounds."""
    text = parameters.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"-?\d+", text):
        raise RotaError(f"SchedulerParameters: {name} is {text!r}; it must be a whole number")
    value = int(text)
    return value if least <= value <= _MOST_S.get(name, 100_000) else default


def _placement(config: Mapping[str, str], lines: list[Line]) -> str:
    kind = config.get("selecttype") or "select/cons_tres"
    options = config.get("selecttypeparameters", "").upper()
    if "CR_LLN" in options:
        becomes, meaning = "spread", "the least loaded nodes are taken first"
    else:
        becomes, meaning = "consecutive", "the tightest run of consecutive nodes is taken"
    lines.append(Line(name="SelectType", value=kind, meaning=meaning, becomes=f"--placement {becomes}"))
    return becomes


def _left_out(parameters: Mapping[str, str], policy: str) -> list[Line]:
    """Parameters of the schedulers that change what starts and have no counterpart."""
    mirrored = {"bf_job_part_count_reserve", *_MOST_S}
    found = []
    for name, value in parameters.items():
        if name in mirrored and policy != "fifo":
            default = {"bf_window": 1440, "bf_resolution": 60, "bf_interval": 30, "bf_max_job_test": 500}.get(name, 0)
            least = 0 if name == "bf_job_part_count_reserve" else 1
            if int(value) != _number(parameters, name, default, least):
                meaning = f"out of Slurm's bounds; it uses its default, {default}, and so does the policy"
                found.append(Line(name=name, value=value, meaning=meaning))
        elif name not in _WORK and name not in mirrored and value not in ("0", "no"):
            found.append(Line(name=name, value=value, meaning="has no counterpart"))
    return found


def _order(config: Mapping[str, str]) -> list[Line]:
    """What makes Slurm's order another than that of submission."""
    if (config.get("prioritytype") or "priority/multifactor") == "priority/basic":
        return []
    return [
        Line(name=name, value=value, meaning="jobs are taken in the order of submission; priorities are left out")
        for name in _WEIGHTS
        if (value := config.get(name.lower(), "")) not in ("", "0")
    ]


def _nodes(config: Mapping[str, str]) -> list[Line]:
    """Other settings that change which jobs run where."""
    found = []
    for name, usual, meaning in (
        ("PreemptType", ("preempt/none",), "no job is preempted"),
        ("SelectType", ("select/cons_tres", "select/cons_res"), "nodes are shared by jobs"),
        ("TopologyPlugin", ("topology/none", "topology/default", "topology/flat"), "the network is left out"),
        ("OverTimeLimit", ("0 min", "0"), "jobs end at their limit at the latest"),
        ("CompleteWait", ("0 sec", "0"), "nodes are free as soon as a job ends"),
    ):
        value = config.get(name.lower(), "")
        if value and value not in usual:
            found.append(Line(name=name, value=value, meaning=meaning))
    return found
