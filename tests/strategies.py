"""Random clusters, jobs and misfortunes for Hypothesis: small, odd, and always possible to finish."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from builders import GIB
from rota.core.messages.events import (
    Event,
    JobCancelled,
    JobHeld,
    JobReleased,
    NodeBack,
    NodeDrained,
    NodeLost,
    NodeRated,
    NodeReserved,
    NodeUndrained,
)
from rota.core.messages.reasons import Reason
from rota.core.model.cluster import Cluster, Node, NodeTrust
from rota.core.model.job import Checkpoint, DeviceType, Elastic, Job, JobId, Level, Locality, NodeId, Role, TenantId
from rota.core.model.labels import RESERVED, RESERVED_LATER, Taint
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.perf.speed.model import SpeedModel
from rota.placement import style
from rota.tenancy import allocator
from rota.traces.workload import Outcome, Submission

A, B = DeviceType("a"), DeviceType("b")
SPEEDS = (
    SpeedModel(),
    SpeedModel(),
    SpeedModel(type_speed={B: 0.5}, spread={Level.RACK: 0.9, Level.CLUSTER: 0.5}),
    SpeedModel(device_neighbour=0.7, node_neighbour=0.8),
)
PLACEMENTS = ("any", "consolidate", "consolidate:relax_after=20", "spread", "best-fit", "even", "skew")


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A cluster, what is submitted to it, and what else happens, in order of time."""

    cluster: Cluster
    submissions: tuple[Submission, ...]
    misfortunes: tuple[tuple[float, Event], ...]
    placement: str
    speed: SpeedModel
    restart_s: float
    checkpoint_interval_s: float
    checkpoint_s: float


ARRAY_LIMITS = {JobId("one-at-once"): 1, JobId("two-at-once"): 2}
"""Arrays that some of the jobs are of, and how many of each may run at once."""


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """One to four nodes of up to four devices, of two types, in two racks of two domains."""
    counts_host = draw(st.booleans())
    nodes = []
    for number in range(1, draw(st.integers(1, 4)) + 1):
        devices = draw(st.integers(0 if number > 1 else 1, 4))
        rack = draw(st.sampled_from(["r1", "r2", "r3"]))
        nodes.append(
            Node(
                id=NodeId(f"n{number}"),
                device_type=draw(st.sampled_from([A, A, B])),
                devices=devices,
                sockets=(devices // 2, devices - devices // 2) if draw(st.booleans()) else (),
                device_memory_bytes=draw(st.sampled_from([None, 16 * GIB, 32 * GIB])),
                cpu_milli=draw(st.integers(2, 8)) * 1000 if counts_host else None,
                memory_bytes=draw(st.integers(8, 32)) * GIB if counts_host else None,
                network_bps=10_000 if counts_host else None,
                disk_bps=10_000 if counts_host else None,
                rack=rack,
                domain="d1" if rack == "r1" else "d2",
            )
        )
    return Cluster(nodes=tuple(nodes))


@st.composite
def roles(draw: st.DrawFn, name: str = "worker") -> Role:
    needs_host = draw(st.booleans())
    milli = draw(st.sampled_from([1000, 1000, 1000, 2000, 500, 300, 0]))
    return Role(
        name=name,
        count=draw(st.integers(1, 3)),
        device_milli=milli,
        device_types=draw(st.sampled_from([(), (), (), (A,), (B, A)])),
        device_memory_bytes=draw(st.sampled_from([0, 0, 4 * GIB, 12 * GIB])) if milli else 0,
        cpu_milli=draw(st.integers(0, 3)) * 1000 if needs_host else 0,
        memory_bytes=draw(st.integers(0, 8)) * GIB if needs_host else 0,
        network_bps=draw(st.sampled_from([0, 4000])) if needs_host else 0,
        disk_bps=draw(st.sampled_from([0, 4000])) if needs_host else 0,
    )


@st.composite
def jobs(draw: st.DrawFn, number: int, earlier: int) -> Job:
    parts: tuple[Role, ...] = (draw(roles()),)
    elastic = None
    if draw(st.integers(0, 4)) == 0:
        parts = (parts[0], draw(roles("ps")))
    elif draw(st.integers(0, 4)) == 0:
        elastic = Elastic(min_tasks=1, max_tasks=parts[0].count + 1)
    locality = None
    if draw(st.integers(0, 3)) == 0:
        locality = Locality(
            level=draw(st.sampled_from(list(Level))),
            hard=draw(st.booleans()),
            relax_after_s=float(draw(st.integers(0, 40))),
        )
    depends_on: tuple[JobId, ...] = ()
    if earlier and draw(st.integers(0, 5)) == 0:
        depends_on = (JobId(f"j{draw(st.integers(0, earlier - 1))}"),)
    work = float(draw(st.integers(0, 60)))
    array = draw(st.sampled_from([None, None, None, *ARRAY_LIMITS]))
    return Job(
        id=JobId(f"j{number}"),
        roles=parts,
        tenant=TenantId(draw(st.sampled_from(["red", "blue"]))),
        user=draw(st.sampled_from(["u1", "u2", "u3"])),
        priority=draw(st.integers(-1, 3)),
        work=work,
        estimate_s=work,
        model=draw(st.sampled_from([None, "vgg16", "resnet50"])),
        locality=locality,
        exclusive=draw(st.integers(0, 5)) == 0,
        elastic=elastic,
        depends_on=depends_on,
        array=array,
        array_limit=None if array is None else ARRAY_LIMITS[array],
        deadline_s=draw(st.sampled_from([None, 50.0])),
        time_limit_s=draw(st.sampled_from([None, None, None, 20.0, 45.5])),
        max_restarts=draw(st.sampled_from([None, None, 0, 2])),
        checkpoint=draw(st.sampled_from([None, None, Checkpoint(interval_s=7.0), Checkpoint()])),
    )


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """Jobs that each fit into the empty cluster; every misfortune passes."""
    cluster = draw(clusters())
    chosen = draw(st.sampled_from(PLACEMENTS))
    submissions: list[Submission] = []
    now_s = 0.0
    for _ in range(draw(st.integers(1, 9))):
        now_s += draw(st.integers(0, 15))
        job = draw(jobs(len(submissions), len(submissions)))
        if fits(job, cluster, chosen):
            outcome = draw(st.sampled_from([Outcome.SUCCEEDED] * 5 + [Outcome.FAILED]))
            submissions.append(Submission(job=job, submit_s=now_s, outcome=outcome))
    return Story(
        cluster=cluster,
        submissions=tuple(submissions),
        misfortunes=tuple(draw(misfortunes(cluster, submissions))),
        placement=chosen,
        speed=draw(st.sampled_from(SPEEDS)),
        restart_s=draw(st.sampled_from([0.0, 0.0, 3.0])),
        checkpoint_interval_s=draw(st.sampled_from([0.0, 5.0])),
        checkpoint_s=draw(st.sampled_from([0.0, 0.0, 2.0])),
    )


def fits(job: Job, cluster: Cluster, placement: str) -> bool:
    """Whether the job can run in the empty cluster once its wishes have relaxed."""
    live = LiveJob(job, 0, 0.0, 1.0)
    return not isinstance(allocator("none", style(placement)).offer(live, Inventory(cluster), 1e300), Reason)


def fits_one_type(job: Job, cluster: Cluster, placement: str) -> bool:
    """Whether the job can run in the empty cluster at its full size, with all its devices of one type."""
    if not job.gpu_milli:
        return fits(job, cluster, placement)
    for kind in cluster.devices_by_type:
        if any(role.device_types and kind not in role.device_types for role in job.roles):
            continue
        roles = tuple(replace(role, device_types=(kind,)) if role.device_milli else role for role in job.roles)
        if fits(replace(job, roles=roles, elastic=None), cluster, placement):
            return True
    return False


@st.composite
def misfortunes(draw: st.DrawFn, cluster: Cluster, submissions: list[Submission]) -> list[tuple[float, Event]]:
    """Nodes that fail, are drained or in doubt, and come back; jobs that are cancelled, or held and released."""
    events: list[tuple[float, Event]] = []
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from([node.id for node in cluster.nodes]))
        at_s = draw(st.integers(0, 120)) + draw(st.sampled_from([0.0, 0.5]))
        for_s = draw(st.integers(0, 50))
        match draw(st.sampled_from(["lost", "drained", "reserved", "in doubt"])):
            case "lost":
                events += [(at_s, NodeLost(name)), (at_s + for_s, NodeBack(name))]
            case "drained":
                events += [(at_s, NodeDrained(name)), (at_s + for_s, NodeUndrained(name))]
            case "reserved":
                shut = (Taint(draw(st.sampled_from([RESERVED, RESERVED_LATER])), "r"),)
                events += [(at_s, NodeReserved(name, shut)), (at_s + for_s, NodeReserved(name))]
            case _:
                trust = draw(st.sampled_from([NodeTrust.SUSPECT, NodeTrust.UNPROVEN]))
                events += [(at_s, NodeRated(name, trust)), (at_s + for_s, NodeRated(name, NodeTrust.PROVEN))]
    for submission in submissions:
        for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
            events += draw(_meddling(submission.job.id, submission.submit_s))
    return sorted(events, key=lambda entry: entry[0])


@st.composite
def _meddling(draw: st.DrawFn, job_id: JobId, submit_s: float) -> Any:
    at_s = submit_s + draw(st.integers(0, 60)) + 0.25
    if draw(st.booleans()):
        return [(at_s, JobCancelled(job_id))]
    return [(at_s, JobHeld(job_id)), (at_s + draw(st.integers(0, 30)), JobReleased(job_id))]
