"""The loop on a Kubernetes cluster: the state is rebuilt from pods, and the driver's events are passed on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rota.core.codec import snapshot
from rota.core.codec.values import decode_job, encode_job, encode_placement
from rota.core.messages.events import Event, Interrupted, JobEnded, NodeAdded, NodeRemoved, StartFailed
from rota.core.model.cluster import Cluster
from rota.core.model.job import Job, JobId, JobState
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.phases import Phase
from rota.core.state.state import State
from rota.drivers.kubernetes.driver import Found, Known, KubernetesDriver
from rota.drivers.kubernetes.gangs.gang import Gang
from rota.drivers.kubernetes.objects.gang_jobs import spec_of
from rota.drivers.kubernetes.objects.nodes import cluster_of
from rota.drivers.kubernetes.objects.pods import PodPhase
from rota.drivers.kubernetes.settings import ClusterSettings
from rota.live.loop.boot import Scheduling, as_scheduled, begin
from rota.live.loop.cluster_config import ClusterConfig
from rota.live.loop.control import PAST_KEY, Control
from rota.live.loop.entry import LoopEntry, News
from rota.live.loop.policy_memory import PolicyMemory
from rota.live.loop.record import Record, changes_of, dump, row_of
from rota.policies import find_policy
from rota.store import clock
from rota.store.jobs import FINAL
from rota.store.records import Records, WriteBatch

Json = dict[str, Any]
_FATES = (JobEnded, Interrupted, StartFailed)


class KubernetesLoop:
    """Passes the events of the Kubernetes driver on to the loop, and ends of jobs back to the driver."""

    def __init__(
        self,
        control: Control,
        records: Records,
        driver: KubernetesDriver,
        settings: ClusterSettings,
    ) -> None:
        self._control = control
        self._records = records
        self._driver = driver
        self._settings = settings
        self.weigh: Callable[[Event, Mapping[JobId, str]], None] = lambda event, why: None
        """Is told of every event before the engine, with the messages of ends."""
        control.listen(self._on_news)

    @property
    def state(self) -> State:
        """What the engine knows; for reading only."""
        return self._control.state

    @property
    def is_settled(self) -> bool:
        """Whether no event waits for the next step."""
        return not self._control.pending

    def deliver(self, events: Sequence[Event], arriving: dict[JobId, Gang], why: dict[JobId, str]) -> None:
        """Pass events on to the loop; `arriving` are the gangs of arriving jobs, `why` the messages of ends."""
        entry = LoopEntry(list(events))
        for name, gang in arriving.items():
            assert gang.job is not None
            entry.records[name] = Record(dump(spec_of(gang.job, gang.key.namespace)), gang.job.user)
        for event in events:
            self.weigh(event, why)
            if isinstance(event, _FATES) and event.job_id in self._control.kept:
                self._control.kept[event.job_id].message = why.get(event.job_id, "")
        if any(isinstance(event, NodeAdded | NodeRemoved) for event in events) and self._driver.node_cache.nodes:
            entry.cluster = cluster_of(self._driver.node_cache.nodes, self._settings)
        self._control.happened(entry)

    def refuse(self, job: Job) -> str | None:
        """Return why a job can never run here; None if it can."""
        if not job.preempts and not self._control.engine.policy.capabilities.spares_others:
            return (
                f"preemptionPolicy is Never, which policy {self._settings.policy} can't keep; use one that orders "
                "jobs, such as priority, or leave it out"
            )
        return self._control.engine.refuse(job)

    def is_used(self, name: JobId) -> bool:
        """Return whether a job of this id exists or existed."""
        return name in self._control.state.jobs or self._records.job(name) is not None

    def _on_news(self, news: Sequence[News]) -> None:
        for each in news:
            if each.state in FINAL:
                self._driver.ended(each.job_id, cancelled=each.state == JobState.CANCELLED.value)


def boot_on_pods(
    records: Records, driver: KubernetesDriver, settings: ClusterSettings
) -> tuple[Control, Scheduling, KubernetesLoop]:
    """Return the loop, ready to run, in the state of the cluster, and what passes the driver's events on to it.

    A policy that the driver can't serve is refused before anything is changed.
    """
    declared, options = find_policy(settings.policy)
    declared.refuse_driver(options, driver.contract, live=True)
    nodes = driver.node_cache.nodes
    cluster = cluster_of(nodes, settings)
    scheduling = Scheduling(
        cluster=cluster,
        policy=settings.policy,
        placement=settings.placement,
        tenancy=settings.tenancy,
        network=settings.network_spec(),
    )
    recall = PolicyMemory(records, declared.name)
    rows = {JobId(row.id): row for row in records.live_jobs()}
    found = _undisputed(driver, cluster, rows)
    ended = _ended_rows(records, [each.job.id for each in found if each.job.id not in rows])
    alive = {each.job.id for each in found} | _gathering(driver, rows)
    left = driver.names_left_alone()
    _close_missing(records, driver, [row for name, row in rows.items() if name not in alive | left])
    kept: dict[JobId, Record] = {}
    pairs = []
    seq = records.next_seq()
    for each in sorted(found, key=lambda each: (_created_s(each.gang), each.job.id)):
        row, closed = rows.get(each.job.id), ended.get(each.job.id)
        number = seq if closed is None else closed.seq
        standing = _standing(each, row, number, [str(node.id) for node in nodes])
        pairs.append((each.job, recall.standing(standing)))
        kept[each.job.id] = _record(row, each.job, each.gang.key.namespace)
        seq += row is None and closed is None
    for name, row in rows.items():
        if name in alive and name not in kept:
            pairs.append((decode_job(json.loads(row.job)), recall.standing(_waiting(json.loads(row.live)))))
            kept[name] = _record(row, None, "")
    frame = snapshot.Snapshot(
        now_s=max([clock.now_s(), *(value["since_s"] for _, value in pairs)]),
        seq=seq,
        memory=recall.memory(),
        past=records.setting(PAST_KEY) or {},
    )
    state = snapshot.rebuild(cluster, pairs, frame)
    _write_found(records, state, kept, [name for name in kept if name not in rows], ended)
    driver.node_cache.begin()
    about = f"Resynced: {len(found)} jobs found on {len(nodes)} nodes of a Kubernetes cluster"
    present = ClusterConfig(cluster, cluster, settings.tenancy, has_fixed_nodes=False)
    was = as_scheduled(scheduling, state, kept, present, LoopEntry([], cluster=cluster))
    control = begin(records, scheduling, was, about)
    waiting = {name: live.job for name, live in state.jobs.items() if live.state is JobState.HELD}
    loop = KubernetesLoop(control, records, driver, settings)
    driver.attach(loop, Known(found=found, waiting=waiting))
    return control, scheduling, loop


def _undisputed(driver: KubernetesDriver, cluster: Cluster, rows: Mapping[JobId, Any]) -> list[Found]:
    """Return the gangs that hold devices.

    Users can change annotations, so a gang that claims the devices or the id of another is left alone, and so is one on
    devices that the settings do not describe. Those that claim what the records say come first.
    """
    scratch, empty = Inventory(cluster), Inventory(cluster)
    names = [str(node.id) for node in cluster.nodes]
    kept: dict[JobId, Found] = {}
    for each in sorted(driver.resync(cluster.nodes), key=lambda each: not _is_recorded(each, rows, names)):
        if not _is_described(each, empty):
            driver.leave_alone(each.gang, "the settings do not describe their devices")
        elif each.job.id in kept or not scratch.is_free(each.placement, each.job.roles, back=True):
            driver.leave_alone(each.gang, "their annotations state the job or the devices of another")
        else:
            scratch.take(each.placement, each.job.roles)
            kept[each.job.id] = each
    return list(kept.values())


def _is_recorded(each: Found, rows: Mapping[JobId, Any], names: list[str]) -> bool:
    """Whether the records have a gang where its pods say that it is."""
    row = rows.get(each.job.id)
    return row is not None and bool(json.loads(row.live).get("on") == encode_placement(each.placement, names))


def _is_described(each: Found, empty: Inventory) -> bool:
    """Whether the cluster, as the settings describe it, has the devices that a gang holds."""
    roles = each.job.roles
    if any(slot.role >= len(roles) for slot in each.placement):
        return False
    same = all(
        slot.devices.bit_count() * slot.milli == roles[slot.role].device_milli * slot.tasks for slot in each.placement
    )
    return same and empty.is_free(each.placement, roles, back=True)


def _ended_rows(records: Records, names: Sequence[JobId]) -> dict[JobId, Any]:
    """Return the rows of jobs that were recorded as ended, but run: other settings did not know their pods."""
    found = ((name, records.job(name)) for name in names)
    return {name: row for name, row in found if row is not None}


def _gathering(driver: KubernetesDriver, rows: dict[JobId, Any]) -> set[JobId]:
    """Return recorded jobs whose pods exist but hold no devices."""
    return {name for name in driver.names_waiting() if name in rows}


def _created_s(gang: Gang) -> float:
    return min((pod.created_s for pod in gang.members.values()), default=0.0)


def _standing(each: Found, row: Any, seq: int, names: list[str]) -> Json:
    """Return the state of a job that holds devices, from the cluster and the records."""
    now_s = clock.now_s()
    known: Json = {} if row is None else json.loads(row.live)
    for gone in ("leaving", "stopping", "retry_s", "lease"):
        known.pop(gone, None)
    created_s = min(_created_s(each.gang), now_s)
    value: Json = {"seq": seq, "submitted_s": created_s, "since_s": created_s, "work_from_s": now_s, **known}
    value["on"] = encode_placement(each.placement, names)
    held_milli = sum(slot.devices.bit_count() * slot.milli for slot in each.placement)
    value["run_milli"] = held_milli
    if each.is_running:
        value |= {"state": JobState.RUNNING.value, "rate": 1.0, "run_since_s": known.get("run_since_s") or now_s}
        value["first_start_s"] = known.get("first_start_s") or now_s
        value["work_from_s"] = known.get("work_from_s") if known.get("run_since_s") else now_s
    else:
        value |= {"state": JobState.STARTING.value, "rate": 0.0, "run_since_s": None}
    return value


def _waiting(known: Json) -> Json:
    """Return the state of a job without devices: held until all its pods exist."""
    for gone in ("leaving", "stopping", "retry_s", "lease", "on"):
        known.pop(gone, None)
    return {**known, "state": JobState.HELD.value, "rate": 0.0, "run_since_s": None, "work_from_s": known["since_s"]}


def _record(row: Any, job: Job | None, namespace: str) -> Record:
    if row is None:
        assert job is not None
        return Record(dump(spec_of(job, namespace)), job.user)
    record = Record(row.spec, row.owner)
    record.attempt, record.failures, record.message = row.attempt, row.failures, row.message
    return record


def _write_found(
    records: Records, state: State, kept: dict[JobId, Record], names: list[JobId], ended: dict[JobId, Any]
) -> None:
    """Record jobs that run but have no row, for another replica started them, or one that says that they ended."""
    batch = WriteBatch()
    node_names = [str(books.node.id) for books in state.inventory.nodes]
    for name in names:
        live = state.jobs[name]
        if name in ended:
            batch.changed_jobs.append(changes_of(live, kept[name], state, node_names))
        else:
            batch.new_jobs.append(row_of(live, kept[name], state, node_names, encode_job(live.job)))
    if names:
        records.write(batch)()


def _close_missing(records: Records, driver: KubernetesDriver, rows: list[Any]) -> None:
    """Close recorded jobs that the cluster no longer has: ended as their pods did, or cancelled with them."""
    batch = WriteBatch()
    blank = State(Inventory())
    phases_by_job = driver.phases_by_job()
    for row in rows:
        live = LiveJob(decode_job(json.loads(row.job)), row.seq, row.submitted_s, 1.0)
        phases = phases_by_job.get(JobId(row.id), [])
        live.restore_end(_end_phase(phases), row.started_s, clock.now_s())
        record = _record(row, None, "")
        record.message = "" if phases else "its pods were gone when Rota restarted"
        batch.changed_jobs.append(changes_of(live, record, blank, []))
    if rows:
        records.write(batch)()


def _end_phase(phases: Sequence[PodPhase]) -> Phase:
    """Return how a job ended whose pods are in these phases; without pods it was cancelled."""
    if phases and all(phase is PodPhase.SUCCEEDED for phase in phases):
        return Phase.SUCCEEDED
    return Phase.FAILED if PodPhase.FAILED in phases else Phase.CANCELLED
