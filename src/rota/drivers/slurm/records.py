"""Slurm's jobs and nodes as types. The only place where its JSON is read.

A record that can't be understood is left out and reported once; it never ends the loop. Output that is no JSON at all,
or has errors and no records, raises `SlurmUnreadable`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from rota.core.errors import RotaError
from rota.drivers.slurm.fields import (
    MEBI,
    BadField,
    Gpus,
    gres,
    hosts,
    indexes,
    memory_bytes,
    number,
    text,
    tres,
    tres_gpus,
    whole,
    words,
)

Json = dict[str, Any]
T = TypeVar("T")
RUNNING = frozenset(
    {"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}
)
"""States in which a job holds its nodes."""
PENDING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
SUCCEEDED = frozenset({"COMPLETED"})
CANCELLED = frozenset({"CANCELLED", "PREEMPTED", "REVOKED", "DEADLINE"})
FAILED = frozenset({"FAILED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "LAUNCH_FAILED", "RECONFIG_FAIL"})
_NODE_DOWN = frozenset(
    {"DOWN", "UNKNOWN", "ERROR", "FUTURE", "POWERED_DOWN", "POWERING_DOWN", "NOT_RESPONDING", "FAIL"}
)
_NODE_DRAINED = frozenset({"DRAIN", "DRAINED", "DRAINING", "FAILING", "MAINTENANCE", "MAINT", "REBOOT_REQUESTED"})


class SlurmUnreadable(RotaError):
    """What Slurm printed can't be understood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShare:
    """What a running job holds of one node."""

    node: str
    gpus: Gpus
    cpus: int
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """A job, or one task of an array, as Slurm describes it."""

    id: str
    """`17`, or `17_3` for a task of an array: the name that `scontrol` takes."""
    number: int
    name: str
    user: str
    account: str
    partitions: tuple[str, ...]
    qos: str
    state: str
    reason: str
    priority: int
    nodes_wanted: int
    gpus: Gpus
    gpus_per_node: int
    """GPUs on each node, where the job asks for them that way; 0 otherwise."""
    gpus_per_task: int
    """GPUs of each task, where the job asks for them that way; 0 otherwise."""
    cpus: int
    memory_bytes: int
    features: str
    required_nodes: tuple[str, ...]
    excluded_nodes: tuple[str, ...]
    exclusive: bool
    requeue: bool
    reservation: str
    dependency: str
    time_limit_s: float | None
    submit_s: float
    eligible_s: float
    start_s: float
    end_s: float
    restarts: int
    exit_code: int
    admin_comment: str
    array: str
    """The id of its array; empty if it is in none."""
    array_limit: int
    """How many tasks of its array may run at once; 0: any number."""
    shares: tuple[NodeShare, ...] = ()
    is_het: bool = False

    @property
    def holds_nodes(self) -> bool:
        """Whether it holds nodes now."""
        return self.state in RUNNING

    @property
    def is_pending(self) -> bool:
        """Whether it waits, held or not."""
        return self.state in PENDING

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        return not self.holds_nodes and not self.is_pending


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmNode:
    """A node as Slurm describes it."""

    name: str
    gpus: Gpus
    cpus: int
    memory_bytes: int
    features: tuple[str, ...]
    partitions: tuple[str, ...]
    is_down: bool
    is_drained: bool
    reason: str
    is_reserved: bool = False
    """Whether it takes no jobs but those of a reservation."""


@dataclass(slots=True)
class SlurmReading(Generic[T]):
    """What was read, and what is wrong with records that were left out."""

    found: list[T] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def read_jobs(output: str | bytes) -> SlurmReading[SlurmJob]:
    """Read the output of `squeue --json`; waiting tasks of arrays become jobs of their own."""
    return _read(output, "jobs", _jobs_of)


class QueueReader:
    """Reads one queue again and again: records that did not change are not taken apart a second time."""

    def __init__(self) -> None:
        self._known: dict[Any, tuple[Json, list[SlurmJob]]] = {}

    def read(self, output: str | bytes) -> SlurmReading[SlurmJob]:
        """Read the output of `squeue --json`."""
        known, self._known = self._known, {}

        def parse(value: Json) -> list[SlurmJob]:
            key = str(value.get("job_id"))
            before = known.get(key)
            jobs = before[1] if before is not None and before[0] == value else _jobs_of(value)
            self._known[key] = (value, jobs)
            return jobs

        return _read(output, "jobs", parse)


def read_nodes(output: str | bytes) -> SlurmReading[SlurmNode]:
    """Read the output of `sinfo --json`, or of slurmrestd's list of nodes."""
    return _read(output, "nodes", lambda value: [_node_of(value)])


def _read(output: str | bytes, key: str, parse: Callable[[Json], list[T]]) -> SlurmReading[T]:
    try:
        value = json.loads(output)
    except (ValueError, RecursionError) as error:
        raise SlurmUnreadable(f"Slurm's list of {key} is not JSON: {str(error)[:100]}") from error
    if not isinstance(value, dict):
        raise SlurmUnreadable(f"Slurm's list of {key} is a {type(value).__name__}, not an object")
    records = value.get(key)
    if not isinstance(records, list):
        raise SlurmUnreadable(f"Slurm's answer has no list of {key}{_errors_in(value)}")
    if not records and (said := _errors_in(value)) and "Nothing found" not in said:
        raise SlurmUnreadable(f"Slurm can't list its {key}{said}")
    reading: SlurmReading[T] = SlurmReading()
    for index, record in enumerate(records):
        try:
            if not isinstance(record, dict):
                raise BadField(f"a {type(record).__name__}, not an object")
            reading.found += parse(record)
        except (BadField, KeyError, OverflowError) as error:
            about = record.get("job_id", record.get("name", index)) if isinstance(record, dict) else index
            what = f"no {error}" if isinstance(error, KeyError) else str(error)
            reading.faults.append(f"{key} {about}: {what}")
    return reading


def _errors_in(value: Json) -> str:
    errors = value.get("errors")
    if not isinstance(errors, list) or not errors:
        return ""
    first = errors[0]
    said = (first.get("error") or first.get("description") or "") if isinstance(first, dict) else first
    return f": {str(said)[:200]}"


def _jobs_of(value: Json) -> list[SlurmJob]:
    job = _job_of(value)
    tasks = text(value.get("array_task_string"))
    if not tasks:
        return [job]
    return [replace(job, id=f"{job.number}_{index}", array=str(job.number)) for index in indexes(tasks)]


def _job_of(value: Json) -> SlurmJob:
    id_number = whole(value["job_id"])
    array, task = whole(value.get("array_job_id")), number(value.get("array_task_id"))
    states = words(value["job_state"])
    if not states:
        raise BadField("no state")
    resources = tres(text(value.get("tres_alloc_str"))) or tres(text(value.get("tres_req_str")))
    asked = tres(text(value.get("tres_req_str"))) or resources
    gpus = _gpus_wanted(value, asked, max(whole(asked.get("node")), 1))
    limit = number(value.get("time_limit"))
    code = value.get("exit_code")
    if isinstance(code, dict):
        code = code.get("return_code", 0)
    shared = value.get("shared")
    return SlurmJob(
        id=str(id_number) if not array or task is None else f"{array}_{int(task)}",
        number=id_number,
        name=text(value.get("name")),
        user=text(value.get("user_name")) or str(whole(value.get("user_id"))),
        account=text(value.get("account")),
        partitions=words(value.get("partition")),
        qos=text(value.get("qos")),
        state=next((each for each in states if each in RUNNING), states[0]),
        reason=text(value.get("state_reason")),
        priority=whole(value.get("priority")),
        nodes_wanted=max(whole(asked.get("node")), 1),
        gpus=gpus,
        gpus_per_node=_each(value, "tres_per_node").count,
        gpus_per_task=_each(value, "tres_per_task").count,
        cpus=whole(asked.get("cpu")),
        memory_bytes=memory_bytes(asked.get("mem", "")),
        features=text(value.get("features")),
        required_nodes=hosts(text(value.get("required_nodes"))),
        excluded_nodes=hosts(text(value.get("excluded_nodes"))),
        exclusive=shared == 0 or shared == "none" or (isinstance(shared, list) and "none" in shared),
        requeue=bool(value.get("requeue")),
        reservation=text(value.get("resv_name")),
        dependency=text(value.get("dependency")),
        time_limit_s=None if limit is None else limit * 60.0,
        submit_s=number(value.get("submit_time")) or 0.0,
        eligible_s=number(value.get("eligible_time")) or 0.0,
        start_s=number(value.get("start_time")) or 0.0,
        end_s=number(value.get("end_time")) or 0.0,
        restarts=whole(value.get("restart_cnt")),
        exit_code=whole(code) >> 8 if whole(code) > 255 else whole(code),
        admin_comment=text(value.get("admin_comment")),
        array=str(array) if array else "",
        array_limit=whole(value.get("array_max_tasks")),
        shares=_shares(value) or _even_shares(hosts(text(value.get("nodes"))), resources, gpus),
        is_het=whole(value.get("het_job_id")) != 0,
    )


def _gpus_wanted(value: Json, resources: dict[str, str], nodes: int) -> Gpus:
    """GPUs of the whole job: by job, by node or by task; the resources name them only where Slurm tracks them."""
    tasks = max(whole(value.get("tasks")), 1)
    for name, times in (("tres_per_job", 1), ("tres_per_node", nodes), ("tres_per_task", tasks)):
        found = _each(value, name)
        if found.count:
            return Gpus(found.count * times, found.type)
    return tres_gpus(resources)


def _each(value: Json, name: str) -> Gpus:
    """GPUs of `gres:gpu:2` or `gres/gpu:a100=2`."""
    return gres(text(value.get(name)).replace("gres:", "").replace("gres/", "").replace("=", ":"))


def _shares(value: Json) -> tuple[NodeShare, ...]:
    """What a job holds of each node; GPUs are listed in the order of its nodes."""
    held = value.get("job_resources")
    if not isinstance(held, dict) or not held:
        return ()
    listed = held.get("allocated_nodes")
    if listed is None and isinstance(held.get("nodes"), dict):
        listed = held["nodes"].get("allocation")
    if isinstance(listed, dict):
        listed = list(listed.values())
    if not isinstance(listed, list):
        return ()
    details = value.get("gres_detail") or []
    if not isinstance(details, list):
        raise BadField("gres_detail is not a list")
    shares = []
    for index, each in enumerate(listed):
        if not isinstance(each, dict):
            raise BadField("job_resources is not a list of nodes")
        name = text(each.get("nodename") or each.get("name"))
        gpus = gres(text(details[index])) if index < len(details) else Gpus(0)
        memory = each.get("memory_allocated")
        if isinstance(each.get("memory"), dict):
            memory = each["memory"].get("allocated")
        shares.append(NodeShare(node=name, gpus=gpus, cpus=_cpus_of(each), memory_bytes=whole(memory) * MEBI))
    return tuple(shares)


def _even_shares(names: tuple[str, ...], resources: dict[str, str], gpus: Gpus) -> tuple[NodeShare, ...]:
    """What a job held of nodes that Slurm only names, as after its end: equal shares."""
    if not names:
        return ()
    count = len(names)
    cpus, memory = whole(resources.get("cpu")) // count, memory_bytes(resources.get("mem", "")) // count
    held = Gpus(gpus.count // count, gpus.type)
    return tuple(NodeShare(node=name, gpus=held, cpus=cpus, memory_bytes=memory) for name in names)


def _cpus_of(share: Json) -> int:
    """CPUs of a job on a node: the cores that are marked as allocated, or the count where a release says it."""
    cpus = share.get("cpus")
    if isinstance(cpus, dict):
        return whole(cpus.get("count"))
    sockets = share.get("sockets")
    if isinstance(sockets, dict):
        cores = [core for socket in sockets.values() if isinstance(socket, dict) for core in _cores(socket)]
        return sum(core.startswith("allocated") for core in cores)
    return whole(share.get("cpus_used"))


def _cores(socket: Json) -> list[str]:
    cores = socket.get("cores")
    return [str(each) for each in cores.values()] if isinstance(cores, dict) else []


def _node_of(value: Json) -> SlurmNode:
    states = {state.upper().rstrip("*~#!%$@^-") for state in (*words(value["state"]), *words(value.get("state_flags")))}
    name = text(value["name"])
    if not name:
        raise BadField("no name")
    return SlurmNode(
        name=name,
        gpus=gres(text(value.get("gres"))),
        cpus=whole(value.get("cpus")),
        memory_bytes=whole(value.get("real_memory")) * MEBI,
        features=words(value.get("active_features", value.get("features"))),
        partitions=words(value.get("partitions")),
        is_down=bool(states & _NODE_DOWN),
        is_drained=bool(states & _NODE_DRAINED),
        is_reserved="RESERVED" in states,
        reason=text(value.get("reason")),
    )
