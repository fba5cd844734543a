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
from rota.drivers.slurm.printed.fields import (
    MEBI,
    BadField,
    Gpus,
    gpu_types,
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
from rota.drivers.slurm.printed.held_shares import NodeShare, shares_of
from rota.drivers.slurm.printed.json_records import decode_list

Json = dict[str, Any]
T = TypeVar("T")
RUNNING = frozenset(
    {"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}
)
"""States in which a job holds its nodes."""
SUSPENDED = frozenset({"SUSPENDED", "STOPPED"})
"""Those in which its tasks stand still."""
PENDING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
SUCCEEDED = frozenset({"COMPLETED"})
CANCELLED = frozenset({"CANCELLED", "PREEMPTED", "REVOKED", "DEADLINE"})
FAILED = frozenset({"FAILED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "LAUNCH_FAILED", "RECONFIG_FAIL"})
_FLAGS = (
    *("COMPLETING", "STAGE_OUT", "CONFIGURING", "RESIZING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD"),
    *("SPECIAL_EXIT", "STOPPED", "REVOKED", "RESV_DEL_HOLD", "SIGNALING"),
)
"""What Slurm says of a job in place of its state, the first that holds; newer releases list them beside the state."""
_STATES = RUNNING | PENDING | SUCCEEDED | CANCELLED | FAILED
_NODE_DOWN = frozenset(
    {"DOWN", "UNKNOWN", "ERROR", "FUTURE", "POWERING_DOWN", "NOT_RESPONDING", "FAIL", "INVALID", "INVALID_REG"}
)
"""A node that is powered down (`idle~`) is not among them: Slurm gives it jobs, and powers it up."""
_NODE_DRAINED = frozenset({"DRAIN", "DRAINED", "DRAINING", "FAILING", "MAINTENANCE", "MAINT", "REBOOT_REQUESTED"})


class SlurmUnreadable(RotaError):
    """What Slurm printed can't be understood."""


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
    suspended_s: float
    """When it was last suspended or resumed; 0 if it never was."""
    ran_before_s: float
    """How long it had run when it was last suspended."""
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

    @property
    def is_suspended(self) -> bool:
        """Whether its tasks stand still on nodes that it keeps."""
        return self.state in SUSPENDED

    def runs_since_s(self, now_s: float) -> float:
        """Since when it would have run by now without a break to have run as long as it has; dates."""
        if not self.suspended_s:
            return self.start_s
        return (now_s if self.is_suspended else self.suspended_s) - self.ran_before_s


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
    gpu_types: tuple[str, ...] = ()
    """The types of its GPUs; they count as of the first."""
    is_reserved: bool = False
    """Whether it takes no jobs but those of a reservation."""

    @property
    def is_mixed(self) -> bool:
        """Whether it has GPUs of several types, between which Rota can't choose."""
        return len(self.gpu_types) > 1


@dataclass(slots=True)
class SlurmReading(Generic[T]):
    """What was read, and what is wrong with records that were left out."""

    found: list[T] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    unread: set[str] = field(default_factory=set)
    """The ids of records that were left out; "" stands for one whose id can't be read either."""


def read_jobs(output: str | bytes) -> SlurmReading[SlurmJob]:
    """Read the output of `squeue --json`; waiting tasks of arrays become jobs of their own."""
    return _read(output, "jobs", _jobs_of)


class QueueReader:
    """Reads one queue again and again: records that did not change are not taken apart a second time."""

    def __init__(self) -> None:
        self._known: dict[Any, tuple[Json, list[SlurmJob]]] = {}
        self.adjust: Callable[[SlurmJob], SlurmJob] = lambda job: job
        """What is made of each job; set before the first reading."""

    def read(self, output: str | bytes) -> SlurmReading[SlurmJob]:
        """Read the output of `squeue --json`."""
        known, self._known = self._known, {}

        def parse(value: Json) -> list[SlurmJob]:
            key = str(value.get("job_id"))
            value = {name: value[name] for name in _READ if name in value}
            before = known.get(key)
            if before is not None and before[0] == value:
                jobs = before[1]
            else:
                jobs = [self.adjust(job) for job in _jobs_of(value)]
            self._known[key] = (value, jobs)
            return jobs

        return _read(output, "jobs", parse)


_READ = (
    *("account", "admin_comment", "array_job_id", "array_max_tasks", "array_task_id", "array_task_string"),
    *("dependency", "eligible_time", "end_time", "excluded_nodes", "exclusive", "exit_code", "features", "gres_detail"),
    *("het_job_id", "job_id", "job_resources", "job_state", "name", "nodes", "partition", "priority", "qos", "requeue"),
    *("pre_sus_time", "required_nodes", "restart_cnt", "resv_name", "shared", "start_time", "state_reason"),
    *("submit_time", "suspend_time", "tasks", "time_limit"),
    *("tres_alloc_str", "tres_per_job", "tres_per_node", "tres_per_task", "tres_req_str", "user_id"),
    "user_name",
)
"""All that is read of a job: while it stays the same, so does the job. What else changes at each look is no matter."""


def read_nodes(output: str | bytes) -> SlurmReading[SlurmNode]:
    """Read the output of `sinfo --json`, or of slurmrestd's list of nodes."""
    return _read(output, "nodes", lambda value: [_node_of(value)])


def is_summed_up(output: str | bytes) -> bool:
    """Whether this is what `sinfo --json` prints from release 23.02 on: groups of nodes, not each node."""
    try:
        value = json.loads(output)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and "nodes" not in value and isinstance(value.get("sinfo"), list)


def _read(output: str | bytes, key: str, parse: Callable[[Json], list[T]]) -> SlurmReading[T]:
    reading: SlurmReading[T] = SlurmReading()
    count = 0

    def take(record: Any) -> None:
        nonlocal count
        count += 1
        try:
            if not isinstance(record, dict):
                raise BadField(f"a {type(record).__name__}, not an object")
            reading.found += parse(record)
        except (BadField, KeyError, OverflowError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else str(error)
            named = _name_in(record)
            reading.unread.add(named)
            reading.faults.append(f"{key} {named or count - 1}: {what}")

    try:
        value = decode_list(output, key, take)
    except TypeError as error:
        raise SlurmUnreadable(f"Slurm's list of {key} is {error}") from error
    except (ValueError, RecursionError) as error:
        raise SlurmUnreadable(f"Slurm's list of {key} is not JSON: {str(error)[:100]}") from error
    if not isinstance(value.get(key), list):
        raise SlurmUnreadable(f"Slurm's answer has no list of {key}{_errors_in(value)}")
    if not count and (said := _errors_in(value)) and "Nothing found" not in said:
        raise SlurmUnreadable(f"Slurm can't list its {key}{said}")
    return reading


def _name_in(record: Any) -> str:
    """The number of a job, or the name of a node, whatever is wrong with the remainder; empty if it has none."""
    if not isinstance(record, dict):
        return ""
    try:
        found = number(record.get("job_id"))
    except BadField:
        return ""
    if found is not None:
        return str(int(found))
    return record["name"] if isinstance(record.get("name"), str) else ""


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
    if tasks.endswith("..."):
        raise BadField("the tasks of its array are cut off; start slurmrestd with SLURM_BITSTR_LEN=0")
    return [replace(job, id=f"{job.number}_{index}", array=str(job.number)) for index in indexes(tasks)]


def _job_of(value: Json) -> SlurmJob:
    id_number = whole(value["job_id"])
    array, task = whole(value.get("array_job_id")), number(value.get("array_task_id"))
    resources = tres(text(value.get("tres_alloc_str"))) or tres(text(value.get("tres_req_str")))
    asked = tres(text(value.get("tres_req_str"))) or resources
    gpus = _gpus_wanted(value, asked, max(whole(asked.get("node")), 1))
    limit = number(value.get("time_limit"))
    code = value.get("exit_code")
    if isinstance(code, dict):
        code = code.get("return_code", 0)
    return SlurmJob(
        id=str(id_number) if not array or task is None else f"{array}_{int(task)}",
        number=id_number,
        name=text(value.get("name")),
        user=text(value.get("user_name")) or str(whole(value.get("user_id"))),
        account=text(value.get("account")),
        partitions=words(value.get("partition")),
        qos=text(value.get("qos")),
        state=_state_of(words(value["job_state"])),
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
        exclusive=_is_exclusive(value),
        requeue=bool(value.get("requeue")),
        reservation=text(value.get("resv_name")),
        dependency=text(value.get("dependency")),
        time_limit_s=None if limit is None else limit * 60.0,
        submit_s=number(value.get("submit_time")) or 0.0,
        eligible_s=number(value.get("eligible_time")) or 0.0,
        start_s=number(value.get("start_time")) or 0.0,
        end_s=number(value.get("end_time")) or 0.0,
        suspended_s=number(value.get("suspend_time")) or 0.0,
        ran_before_s=number(value.get("pre_sus_time")) or 0.0,
        restarts=whole(value.get("restart_cnt")),
        exit_code=whole(code) >> 8 if whole(code) > 255 else whole(code),
        admin_comment=text(value.get("admin_comment")),
        array=str(array) if array else "",
        array_limit=whole(value.get("array_max_tasks")),
        shares=shares_of(value, resources, gpus),
        is_het=whole(value.get("het_job_id")) != 0,
    )


def _state_of(states: tuple[str, ...]) -> str:
    """The one word that stands for a job's state; one of an unknown release is no end, and not understood."""
    found = next((flag for flag in _FLAGS if flag in states), None) or next(
        (state for state in states if state in _STATES), None
    )
    if found is None:
        raise BadField(f"state {'+'.join(states)!r} is not known")
    return found


def _is_exclusive(value: Json) -> bool:
    """Whether a job takes its nodes whole: `shared` says so up to release 25.11, `exclusive` from then on."""
    shared = value.get("shared")
    if shared is not None:
        return "none" in words(shared) if isinstance(shared, str | list) else shared is not False and shared == 0
    exclusive = value.get("exclusive")
    return exclusive is True or (isinstance(exclusive, str | list) and "true" in words(exclusive))


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


def _node_of(value: Json) -> SlurmNode:
    states = {state.upper().rstrip("*~#!%$@^-") for state in (*words(value["state"]), *words(value.get("state_flags")))}
    name = text(value["name"])
    if not name:
        raise BadField("no name")
    return SlurmNode(
        name=name,
        gpus=gres(text(value.get("gres"))),
        gpu_types=gpu_types(text(value.get("gres"))),
        cpus=whole(value.get("cpus")),
        memory_bytes=whole(value.get("real_memory")) * MEBI,
        features=words(value.get("active_features", value.get("features"))),
        partitions=words(value.get("partitions")),
        is_down=bool(states & _NODE_DOWN),
        is_drained=bool(states & _NODE_DRAINED),
        is_reserved="RESERVED" in states,
        reason=text(value.get("reason")),
    )
