"""Alibaba's GPU trace of 2023 (Weng et al., USENIX ATC 2023): pods that share devices, and their nodes.

A pod is one task on one node: eight devices are a task of eight, not a gang of eight.
"""

from __future__ import annotations

from pathlib import Path

from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import OPPORTUNISTIC, WHOLE, DeviceType, NodeId, Role
from rota.traces.assemble import Shape, plain_job, shape_of
from rota.traces.builder import Entry, TraceBuilder
from rota.traces.fields import amount, bad, whole
from rota.traces.source import TraceSource, open_source
from rota.traces.table import HeaderColumns, Parse, has_columns, job_id, read_table
from rota.traces.workload import Outcome, Workload

MIB = 2**20
SHAPE_COLUMNS = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec")
TIME_COLUMNS = ("creation_time", "deletion_time", "scheduled_time")
COLUMNS = ("name", *SHAPE_COLUMNS, "qos", "pod_phase", *TIME_COLUMNS)
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
OUTCOMES = {
    "Succeeded": Outcome.SUCCEEDED,
    "Running": Outcome.SUCCEEDED,
    "Failed": Outcome.FAILED,
    "Pending": Outcome.CANCELLED,
}
"""A pod deleted while it ran had done what it was for; one deleted while it waited was given up."""
BEST_EFFORT = frozenset({"BE", "BestEffort"})
"""Classes of pods without a guarantee; `LS` (latency-sensitive), `Guaranteed` and `Burstable` ones were."""


def detects(source: TraceSource) -> bool:
    """Whether the header is that of a pod list."""
    return has_columns(source.first_line, COLUMNS)


def read(source: TraceSource) -> Workload:
    """Read a pod list (`openb_pod_list*.csv`); time starts at the first creation."""
    return read_table(source, _parser).workload("alibaba2023", from_zero=True)


def _parser(columns: HeaderColumns, _: TraceBuilder) -> Parse:
    name = columns["name"]
    shape_at = tuple(columns[column] for column in SHAPE_COLUMNS)
    creation, deletion, scheduled = (columns[column] for column in TIME_COLUMNS)
    qos, phase = columns["qos"], columns["pod_phase"]
    shapes: dict[tuple[str, ...], Shape] = {}

    def parse(row: list[str], _: int) -> Entry:
        key = tuple([row[at] for at in shape_at])
        shape = shapes.get(key) or shapes.setdefault(key, _shape(*key))
        created_s = amount("creation_time", row[creation])
        began_s = amount("scheduled_time", row[scheduled]) if row[scheduled] else created_s
        work = amount("deletion_time", row[deletion]) - began_s
        if work < 0:
            raise bad("deletion_time", row[deletion], f"a time after the start at {began_s:g}")
        outcome = OUTCOMES.get(row[phase])
        if outcome is None:
            raise bad("pod_phase", row[phase], f"one of {', '.join(OUTCOMES)}")
        priority = OPPORTUNISTIC if row[qos] in BEST_EFFORT else 0
        job = plain_job(job_id("name", row[name]), shape, work, labels=(("qos", row[qos]),), priority=priority)
        return created_s, job, outcome, 1.0

    return parse


def _shape(cpu_milli: str, memory_mib: str, num_gpu: str, gpu_milli: str, gpu_spec: str) -> Shape:
    gpus = whole("num_gpu", num_gpu)
    device_milli = gpus * WHOLE
    if gpus == 1:
        device_milli = whole("gpu_milli", gpu_milli, at_least=1)
        if device_milli > WHOLE:
            raise bad("gpu_milli", gpu_milli, f"at most {WHOLE}")
    types = () if gpu_spec in ("", "nan") else tuple(DeviceType(name) for name in gpu_spec.split("|"))
    return shape_of(
        Role(
            device_milli=device_milli,
            device_types=types,
            cpu_milli=whole("cpu_milli", cpu_milli),
            memory_bytes=int(amount("memory_mib", memory_mib) * MIB),
        )
    )


def read_alibaba_nodes(path: Path) -> Cluster:
    """The cluster of a node list (`openb_node_list*.csv`), the companion of a pod list."""
    source = open_source(path)
    nodes: list[Node] = []

    def parser(columns: HeaderColumns, _: TraceBuilder) -> Parse:
        places = tuple(columns[name] for name in NODE_COLUMNS)

        def parse(row: list[str], _: int) -> None:
            nodes.append(_node(*[row[at] for at in places]))

        return parse

    read_table(source, parser)
    if not nodes:
        raise RotaError(f"{path}: there are no nodes in it")
    try:
        return Cluster(nodes=tuple(nodes))
    except RotaError as err:
        raise RotaError(f"{path}: {err}") from None


def _node(sn: str, cpu_milli: str, memory_mib: str, gpu: str, model: str) -> Node:
    devices = whole("gpu", gpu)
    if devices and model in ("", "nan"):
        raise bad("model", model, f"the type of the {devices} GPUs")
    return Node(
        id=NodeId(sn),
        device_type=DeviceType(model if devices else "cpu"),
        devices=devices,
        cpu_milli=whole("cpu_milli", cpu_milli),
        memory_bytes=int(amount("memory_mib", memory_mib) * MIB),
    )
