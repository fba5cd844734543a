"""The learned placement keeps to what jobs and nodes say of each other, and reads no more of a job than it declares."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rota.core.messages.decisions import Decision, Start
from rota.core.messages.events import Event
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import WHOLE, DeviceType, Job, JobId, NodeId, Role
from rota.core.model.labels import Requirement, Taint, Toleration, is_met, is_tolerated
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.drivers.simulator.study import Setting, simulate
from rota.learn.workloads import KIND_NAMES, WorkloadShape, cluster_of, workload
from rota.mechanisms.learned.actor import Actor, Network
from rota.mechanisms.learned.server_arrays import ServerArrays
from rota.mechanisms.learned.weights import Learned, load_learned, save_learned
from rota.policies import find_policy
from rota.policies.published.learned.harmony import SHIPPED, learned
from rota.traces.workload import Submission, Workload

TYPES = [DeviceType(name) for name in ("v100", "p100")]
DISKS = ("ssd", "hdd")
JOBS = 24


class Tape:
    """The starts of a run, and the jobs that the network did not place."""

    def __init__(self) -> None:
        self.starts: list[Start] = []
        self.by_heuristic: list[JobId] = []

    def append(
        self,
        now_s: float,
        events: Sequence[Event],
        decisions: Sequence[Decision],
        waits: Sequence[tuple[JobId, Reason]],
    ) -> None:
        self.starts += [decision for decision in decisions if isinstance(decision, Start)]
        self.by_heuristic += [job_id for job_id, reason in waits if reason.code is ReasonCode.BY_HEURISTIC]


def mixed_cluster(chance: random.Random) -> Cluster:
    """Nodes of two types, some tainted, with labels; there are two of each so that every job has somewhere to go."""
    return Cluster(
        nodes=tuple(
            Node(
                id=NodeId(f"{kind}-{disk}-{taint or 'free'}-{number}"),
                device_type=kind,
                devices=chance.choice((2, 4)),
                cpu_milli=20 * WHOLE,
                labels=(("disk", disk),),
                taints=(Taint("team", taint),) if taint else (),
            )
            for kind in TYPES
            for disk in DISKS
            for taint in ("", "vision")
            for number in range(2)
        )
    )


def picky_job(chance: random.Random, number: int) -> Job:
    """Wants a type, a disk, or neither, and tolerates a taint or not; its parameter servers want what they like."""
    disk = chance.choice((*DISKS, None))
    requires = () if disk is None else ((Requirement("disk", "In", (disk,)),),)
    tolerates = (Toleration("team", "vision"),) if chance.random() < 0.5 else ()
    types = (chance.choice(TYPES),) if chance.random() < 0.7 else ()
    workers = Role(
        count=chance.randint(1, 3), cpu_milli=WHOLE, device_types=types, requires=requires, tolerates=tolerates
    )
    roles = [workers]
    if chance.random() < 0.4:
        roles.append(Role(name="ps", count=1, device_milli=0, cpu_milli=WHOLE, tolerates=tolerates))
    model = chance.choice((*KIND_NAMES, "never-heard-of"))
    return Job(id=JobId(str(number)), roles=tuple(roles), model=model, work=chance.uniform(60, 900))


@pytest.fixture(params=["learned", "backwards"])
def weights(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Those that come with Rota, and such as want the opposite."""
    if request.param == "learned":
        return SHIPPED
    now = load_learned(SHIPPED)
    turned = dict(now.network.of) | {"score.weight": -now.network.of["score.weight"]}
    save_learned(tmp_path / "backwards.npz", Learned(Network(now.network.kinds, turned), now.linear))
    return tmp_path / "backwards.npz"


@pytest.mark.parametrize("seed", range(4))
def test_no_task_goes_where_labels_taints_or_types_forbid(weights: Path, seed: int) -> None:
    chance = random.Random(f"picky {seed}")
    cluster = mixed_cluster(chance)
    jobs = {job.id: job for job in (picky_job(chance, number) for number in range(JOBS))}
    submissions = tuple(Submission(job=job, submit_s=chance.uniform(0, 600)) for job in jobs.values())
    work = Workload(
        submissions=tuple(sorted(submissions, key=lambda each: each.submit_s)), source="test", format="rota"
    )
    tape = Tape()

    simulate(work, f"harmony:weights={weights}", Setting(cluster=cluster), journal=tape)

    assert {start.job_id for start in tape.starts} == set(jobs)
    assert not tape.by_heuristic
    for start in tape.starts:
        for slot in start.placement:
            role, node = jobs[start.job_id].roles[slot.role], cluster.nodes[slot.node]
            assert is_met(role.requires, dict(node.labels)), (start, node)
            assert is_tolerated(node.taints, role.tolerates), (start, node)
            assert not role.device_types or node.device_type in role.device_types, (start, node)
        for index in range(len(jobs[start.job_id].roles)):
            assert len({cluster.nodes[slot.node].device_type for slot in start.placement if slot.role == index}) == 1


@pytest.mark.parametrize("knows_length", [True, False])
def test_lengths_change_placements_only_where_the_network_is_told_them(knows_length: bool) -> None:
    """Of a job nothing decides but its kind, its needs and, as is declared, its length."""
    assert "length" in find_policy("harmony")[0].traits.prior_knowledge
    actor = Actor(learned("").network, knows_length=knows_length)
    room = ServerArrays(Inventory(cluster_of(8)), actor.kinds)
    differs = 0
    for number, submission in enumerate(workload(WorkloadShape(servers=8, jobs_per_server=3), 1).submissions):
        short, long = (
            actor.choose(
                room, LiveJob(replace(submission.job, work=work, priority=prior, name=name), number, 0.0, 1.0), 0.0
            )
            for work, prior, name in ((1.0, 0, "a"), (1e6, 5, "b"))
        )
        differs += short != long
        if short is not None:
            room.add(submission.job, short)

    assert (differs > 0) is knows_length
