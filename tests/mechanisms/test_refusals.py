"""Keeping refusals changes no decision: runs with and without it are the same, step by step."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.messages.decisions import Decision
from rota.core.messages.events import Event
from rota.core.messages.reasons import Reason
from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import DeviceType, Job, JobId, Level, Locality, NodeId, Role
from rota.drivers.simulator.study import Setting, simulate
from rota.mechanisms.ordering import refusals
from rota.perf.speed.model import Costs
from rota.placement import Style
from rota.scenario import FaultRates
from rota.traces.workload import Submission, Workload

GIB = 2**30
KINDS = (("big", 8, 32, 128), ("mid", 4, 24, 64), ("small", 2, 8, 32))


class Steps:
    """A journal in memory. Jobs that are stopped at one moment are in no order."""

    def __init__(self) -> None:
        self.steps: list[tuple[float, list[str], list[str], list[str]]] = []

    def append(
        self,
        now_s: float,
        events: Sequence[Event],
        decisions: Sequence[Decision],
        waits: Sequence[tuple[JobId, Reason]],
    ) -> None:
        self.steps.append(
            (now_s, sorted(map(repr, events)), sorted(map(repr, decisions)), sorted(map(repr, waits))),
        )


def _cluster(rng: random.Random) -> Cluster:
    kinds = rng.sample(KINDS, rng.randint(1, 3))
    return Cluster(
        nodes=tuple(
            Node(
                id=NodeId(f"{kind}{number}"),
                device_type=DeviceType(kind),
                devices=gpus,
                cpu_milli=cpus * 1000,
                memory_bytes=memory * GIB,
                rack=f"{kind}{number % 2}",
            )
            for kind, gpus, cpus, memory in kinds
            for number in range(rng.randint(1, 4))
        )
    )


def _role(rng: random.Random, cluster: Cluster) -> Role:
    node = rng.choice(cluster.nodes)
    milli = rng.choice((100, 330, 500, 750, 1000, 1000, 2000, 1000 * node.devices))
    gang = rng.choice((1, 1, 1, 2)) if milli <= 1000 else 1
    return Role(
        count=gang,
        device_milli=milli,
        device_types=(node.device_type,) if milli > 2000 or rng.random() < 0.4 else (),
        cpu_milli=rng.choice((0, 1000, 4000)),
        memory_bytes=rng.choice((0, 2, 12)) * GIB,
    )


def _workload(rng: random.Random, cluster: Cluster) -> Workload:
    shapes = [_role(rng, cluster) for _ in range(rng.randint(2, 12))]
    made, at_s = [], 0.0
    for number in range(60):
        at_s += rng.expovariate(cluster.devices / 900.0)
        job = Job(
            id=JobId(str(number)),
            roles=(rng.choice(shapes),),
            work=float(round(rng.lognormvariate(6.0, 1.3), -1) + 10),
            preempts=rng.random() > 0.1,
            exclusive=rng.random() < 0.05,
            locality=Locality(level=Level.RACK, hard=True, relax_after_s=200.0) if rng.random() < 0.1 else None,
        )
        made.append(Submission(job=job, submit_s=at_s))
    return Workload(submissions=tuple(made), source="made", format="rota")


@pytest.mark.parametrize("policy", ["fifo", "srtf", "las", "gittins", "tiresias"])
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_kept_refusals_change_no_decision(policy: str, seed: int) -> None:
    rng = random.Random(seed)
    cluster = _cluster(rng)
    workload = _workload(rng, cluster)
    setting = Setting(
        cluster=cluster,
        costs=Costs(restart_s=rng.choice((0.0, 20.0)), checkpoint_s=rng.choice((0.0, 3.0))),
        placement=rng.choice((None, "any", "spread", "best-fit", "even")),
        fault_rates=rng.choice((None, FaultRates(mean_time_to_failure_s=20000.0, mean_time_to_repair_s=300.0))),
        seed=seed,
    )
    kept, tried = Steps(), Steps()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refusals, "_MANY_SHAPES", 0)
        simulate(workload, policy, setting, journal=kept)
        patch.setattr(Style, "keeps_refusal", lambda self, job: False)
        simulate(workload, policy, setting, journal=tried)

    assert kept.steps == tried.steps
