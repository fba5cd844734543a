"""Workloads in which placement matters: training jobs of many kinds with map-reduce and HPC jobs on shared servers.

The frequencies of kinds and sizes are assumed; about a third of the jobs are small, as in every published trace. Work
is in seconds alone on one server.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from random import Random

from rota.core.errors import RotaError, did_you_mean
from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import WHOLE, DeviceType, Job, JobId, NodeId, Role
from rota.perf.speed.contention_constants import KINDS
from rota.traces.workload import Submission, Workload

GPUS_PER_SERVER = 4
CORES_PER_SERVER = 20
JOBS_PER_SERVER = 10
LOAD = 0.7
"""Busy fraction of all devices if every job ran at full speed."""
LOADS = (0.001, 100)
"""Allowed range: below it no job arrives, above it thousands arrive in an interval."""
INTERVAL_S = 60.0
"""Interval at which new jobs are placed together."""
MEDIAN_S = 1200.0
SPREAD = 0.8
SIZES = {1: 0.30, 2: 0.30, 3: 0.10, 4: 0.30}
"""Workers of a training job."""
WITH_SERVERS = 0.5
"""Fraction of multi-worker training jobs that exchange gradients through parameter servers."""
BACKGROUND = {"mapreduce": 0.15, "hpc": 0.10}
WORKER_CORES = 3
SERVER_CORES = 2
BACKGROUND_CORES = {"mapreduce": 2, "hpc": 3}
KIND_NAMES = tuple(KINDS)
MODELS = tuple(kind for kind in KINDS if kind not in BACKGROUND)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadShape:
    """Size of the cluster and mix of jobs."""

    servers: int = 6
    jobs_per_server: int = JOBS_PER_SERVER
    load: float = LOAD
    models: tuple[str, ...] = MODELS

    def __post_init__(self) -> None:
        refuse_below_one(servers=self.servers, jobs_per_server=self.jobs_per_server)
        least, most = LOADS
        if not least <= self.load <= most:
            raise RotaError(f"load is {self.load}; it must be from {least} to {most}")


def refuse_below_one(**counts: object) -> None:
    """Refuse counts that are not whole numbers of 1 or more, by name."""
    for name, value in counts.items():
        if not isinstance(value, Integral) or value < 1:
            raise RotaError(f"{name} is {value!r}; it must be a whole number, at least 1")


def cluster_of(servers: int) -> Cluster:
    """Return a cluster of identical servers."""
    return Cluster(
        nodes=tuple(
            Node(
                id=NodeId(f"s{number}"),
                device_type=DeviceType("p100"),
                devices=GPUS_PER_SERVER,
                cpu_milli=CORES_PER_SERVER * WHOLE,
            )
            for number in range(1, servers + 1)
        )
    )


def workload(shape: WorkloadShape, seed: object) -> Workload:
    """Return jobs for a cluster; the same seed gives the same jobs."""
    rng = Random(f"shared servers {seed}")
    count = shape.servers * shape.jobs_per_server
    drawn = [_draw(rng, shape.models) for _ in range(count)]
    busy_s = sum(roles[0].count * work for model, roles, work in drawn if KINDS[model].uses_device) or MEDIAN_S
    mean_s = busy_s / (shape.load * shape.servers * GPUS_PER_SERVER) / count
    submissions, at_s = [], 0.0
    for number, (model, roles, work) in enumerate(drawn):
        at_s += rng.expovariate(1.0 / mean_s)
        job = Job(id=JobId(str(number)), roles=roles, model=model, work=work, name=model)
        submissions.append(Submission(job=job, submit_s=round(at_s, 3)))
    return Workload(submissions=tuple(submissions), source=f"shared servers (seed {seed})", format="rota")


def models_but(left_out: Sequence[str]) -> tuple[str, ...]:
    """Return the models of training jobs without those that are held out."""
    for name in left_out:
        if name not in MODELS:
            raise RotaError(f"--without: unknown model {name!r}; {did_you_mean(name, MODELS)}")
    if not (kept := tuple(model for model in MODELS if model not in left_out)):
        raise RotaError("--without: no model is left to learn from")
    return kept


def workloads(shape: WorkloadShape, seed: int, count: int) -> list[Workload]:
    """Return different workloads of one seed."""
    return [workload(shape, f"{seed}/{number}") for number in range(count)]


def _draw(rng: Random, models: Sequence[str]) -> tuple[str, tuple[Role, ...], float]:
    work = round(MEDIAN_S * math.exp(rng.gauss(0.0, SPREAD)), 1)
    at = rng.random()
    for kind, share in BACKGROUND.items():
        if at < share:
            return kind, (_role("worker", rng.randint(2, 6), BACKGROUND_CORES[kind], devices=0),), work
        at -= share
    model = rng.choice(models)
    workers = rng.choices(list(SIZES), list(SIZES.values()))[0]
    roles: tuple[Role, ...] = (_role("worker", workers, WORKER_CORES),)
    if workers > 1 and rng.random() < WITH_SERVERS:
        roles = (*roles, _role("ps", math.ceil(workers / 2), SERVER_CORES, devices=0))
    return model, roles, work


def _role(name: str, count: int, cores: int, devices: int = 1) -> Role:
    return Role(name=name, count=count, device_milli=devices * WHOLE, cpu_milli=cores * WHOLE)
