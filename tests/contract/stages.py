"""Where scenes are played: the simulator, this machine, a Kubernetes cluster, Slurm. Each returns its journal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from builders import cluster, job, node
from contract.scenes import NODES, PER_NODE, Part, Scene
from e2e.kubernetes.bed import Bed
from e2e.kubernetes.hollow import Hollow
from e2e.kubernetes.replica import Replica
from e2e.kubernetes.replica import job as job_object
from e2e.slurm.bed import SlurmBed
from e2e.slurm.twin import Twin
from managers import Manager, eventually
from rota.core.engine.engine import Engine
from rota.core.messages.events import Event, JobCancelled, NodeLost
from rota.core.model.job import Elastic, JobId, NodeId
from rota.core.state.state import State
from rota.drivers.simulator.run import run
from rota.drivers.simulator.study import Setting, scheduler
from rota.drivers.simulator.world import World
from rota.scenario import Scenario
from rota.sdk.client import Client
from rota.store.journal import JournalHeader, JournalWriter
from rota.traces.workload import Outcome, Submission

CLUSTER = f"gpu={NODES * PER_NODE}/{PER_NODE}"
FINAL = ("succeeded", "failed", "cancelled")


def simulated(scene: Scene, folder: Path) -> Path:
    """Play a scene in virtual time."""
    nodes = cluster(*(node(f"n{number + 1}", PER_NODE) for number in range(NODES)))
    setting = Setting(cluster=nodes, placement=scene.placement)
    policy, alloc, placement = scheduler(scene.policy, setting)
    path = folder / "journal.jsonl"
    header = JournalHeader(scenario=Scenario(policies=(scene.policy,), placement=placement, cluster=nodes))
    with JournalWriter(path, header) as journal:
        engine = Engine(State(nodes), policy, alloc, journal=journal)
        world = World(nodes, setting.speed, setting.costs, overlaps=engine.overlaps)
        run(engine, world, [_submission(part) for part in scene.parts], faults=_faults(scene))
    return path


def _submission(part: Part) -> Submission:
    elastic = None if part.elastic is None else Elastic(min_tasks=part.elastic[0], max_tasks=part.elastic[1])
    asked = job(
        part.name,
        name=part.name,
        gpus=part.gpus,
        workers=part.tasks,
        priority=part.priority,
        work=part.work_s,
        elastic=elastic,
    )
    outcome = Outcome.FAILED if part.fails else Outcome.SUCCEEDED
    return Submission(job=asked, submit_s=part.at_s, outcome=outcome)


def _faults(scene: Scene) -> Iterator[tuple[float, Event]]:
    if scene.cancels is not None:
        yield scene.at_s, JobCancelled(JobId(scene.cancels))
    if scene.loses is not None:
        yield scene.at_s, NodeLost(NodeId(scene.loses))


def on_this_machine(scene: Scene, folder: Path) -> Path:
    """Play a scene with processes."""
    placement = () if scene.placement is None else ("--placement", scene.placement)
    manager = Manager(folder, "--emulate", CLUSTER, "--policy", scene.policy, "--protect", "none", *placement).start()
    try:
        for number, part in enumerate(scene.parts):
            if part.at_s:
                _wait_for_start(manager.client, number)
            more: dict[str, Any] = {}
            if part.elastic is not None:
                more["elastic"] = {"min": part.elastic[0], "max": part.elastic[1]}
            manager.submit(
                f"sleep {part.work_s}; exit {int(part.fails)}",
                name=part.name,
                workers=part.tasks,
                resources={"gpus": part.gpus},
                priority=part.priority,
                max_restarts=0 if part.fails else 5,
                **more,
            )
        _cancel(manager.client, scene)
        return _journal(manager.client, len(scene.parts), folder)
    finally:
        manager.clean_up()


def on_pods(bed: Bed, launch: Callable[..., Replica], kubelets: Callable[..., Hollow]) -> Callable[[Scene, Path], Path]:
    """Return what plays a scene with Jobs of a Kubernetes cluster."""

    def play(scene: Scene, folder: Path) -> Path:
        hollow = kubelets(bed, nodes=NODES, gpus=PER_NODE, beats=True)
        settings = {"policy": scene.policy, "lost_after": 0.5}
        if scene.placement is not None:
            settings["placement"] = scene.placement
        client = Client(launch(bed, settings).url)
        for number, part in enumerate(scene.parts):
            if part.at_s:
                _wait_for_start(client, number)
            _submit_object(bed, part)
        if scene.loses is not None:
            _wait_for_start(client, len(scene.parts))
            hollow.dead.add(scene.loses)
            bed.admin.delete(f"/api/v1/nodes/{scene.loses}")
        _cancel(client, scene)
        return _journal(client, len(scene.parts), folder)

    return play


def on_slurm(bed: SlurmBed, launch: Callable[..., Twin]) -> Callable[[Scene, Path], Path]:
    """Return what plays a scene with batch jobs of a Slurm cluster; priorities are those of QOS."""

    def play(scene: Scene, folder: Path) -> Path:
        for part in scene.parts:
            bed.add_qos(f"p{part.priority}", part.priority)
        rota = launch(bed, "run", "--policy", scene.policy, "--release-after", "0")
        for number, part in enumerate(scene.parts):
            if part.at_s:
                _wait_for_start(rota.client, number)
            work = f"sleep {part.work_s}; exit {int(part.fails)}"
            size = (f"--ntasks={part.tasks}", f"--gpus-per-task={part.gpus}", f"--qos=p{part.priority}", "--requeue")
            bed.submit(work, "--partition=rota", f"--job-name={part.name}", *size)
        if scene.loses is not None:
            _wait_for_start(rota.client, len(scene.parts))
            bed.lose(scene.loses)
        _cancel(rota.client, scene)
        try:
            return _journal(rota.client, len(scene.parts), folder)
        finally:
            if scene.loses is not None:
                bed.bring_back(scene.loses)

    return play


def _submit_object(bed: Bed, part: Part) -> None:
    name = f"priority-{part.priority}"
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    bed.admin.make({**kind, "metadata": {"name": name}, "value": part.priority})
    notes = {"hollow/run-s": str(part.work_s), "hollow/exit": str(int(part.fails))}
    if part.elastic is not None:
        notes["rota.dev/min-tasks"] = str(part.elastic[0])
    value = job_object(part.name, part.tasks, part.gpus, notes=notes, priorityClassName=name)
    if part.fails:
        value["spec"]["backoffLimit"] = 0
    bed.admin.make(value)


def _cancel(client: Client, scene: Scene) -> None:
    if scene.cancels is not None:
        (found,) = [each for each in client.jobs() if each["name"] == scene.cancels]
        client.act(found["id"], "cancel")


def _wait_for_start(client: Client, jobs: int) -> None:
    """Wait until so many jobs have been submitted and one of them has run for a moment."""

    def has_started() -> bool:
        found = list(client.jobs(all=True))
        return len(found) >= jobs and any(each["state"] in ("running", *FINAL) for each in found)

    eventually(has_started)
    time.sleep(0.5)


def _journal(client: Client, jobs: int, folder: Path) -> Path:
    """The journal, once all jobs have ended."""

    def all_ended() -> bool:
        found = list(client.jobs(all=True))
        return len(found) == jobs and all(job["state"] in FINAL for job in found)

    eventually(all_ended, within_s=90)
    path = folder / "journal.jsonl"
    path.write_bytes(b"".join(client.journal()))
    return path
