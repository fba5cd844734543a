"""The twin's looks: its state is Slurm's, whatever happens between two of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drivers.slurm.slurm_values import job_value, jobs, node_value, running_value
from rota.core.engine.engine import Engine
from rota.core.model.job import Job, JobId
from rota.core.state.state import State
from rota.drivers.slurm.observer import SlurmObserver
from rota.drivers.slurm.printed.records import QueueReader, read_jobs, read_nodes
from rota.drivers.slurm.translate import cluster_of
from rota.drivers.slurm.view import SlurmView
from rota.live.slurm.slurm_records import unseen_runs
from rota.placement import style
from rota.tenancy import allocator

Json = dict[str, Any]


class TwinOfTwoNodes:
    """An engine that follows what `squeue --json` prints."""

    def __init__(self) -> None:
        nodes = read_nodes(json.dumps({"nodes": [node_value(name) for name in ("n1", "n2")]}))
        view = SlurmView()
        view.take_nodes(nodes)
        cluster = cluster_of(nodes.found)
        self._reader = QueueReader()
        self._observer = SlurmObserver(view)
        self._engine = Engine(State(cluster), self._observer.policy, allocator("none", style("any"), cluster))
        self._now_s = 1000.0
        self.unseen: list[str] = []
        """Jobs that ran between two looks."""

    def look(self, *values: Json, times: int = 3) -> dict[str, str]:
        """Look at a queue a few times; return the states of jobs, those that have ended included."""
        ended: dict[str, str] = {}
        for _ in range(times):
            self._now_s += 1
            self._observer.view.take(self._reader.read(json.dumps({"jobs": values, "errors": []})), self._now_s)
            events = self._observer.look(self._engine.state, self._now_s, 1.8e9)
            self.unseen += map(str, unseen_runs(events, self._observer.view))
            ended |= self._step(events)
        states = {str(name): live.state.value for name, live in self._engine.state.jobs.items()}
        return {**states, **ended}

    def _step(self, events: Any) -> dict[str, str]:
        before = dict(self._engine.state.jobs)
        decisions = self._engine.step(self._now_s, events)
        answers = self._observer.carry_out(decisions, self._now_s)
        if answers:
            self._engine.step(self._now_s, answers)
        return {str(name): live.state.value for name, live in before.items() if live.state.is_final}

    def ignore(self, *names: str) -> None:
        """Have jobs on record that have ended."""
        self._observer.begin(names)

    @property
    def is_outdated(self) -> bool:
        """Whether the state has to be rebuilt."""
        return self._observer.outdated.is_set()

    def job(self, name: str) -> Job:
        """The request of a job."""
        return self._engine.state.jobs[JobId(name)].job

    def work_done(self, name: str) -> float:
        """How many seconds of work a job has done by now."""
        return self._engine.state.jobs[JobId(name)].work_done(self._now_s)

    def held(self, name: str) -> dict[str, int]:
        """How many devices a job holds of each node."""
        nodes = self._engine.state.inventory.nodes
        found: dict[str, int] = {}
        for slot in self._engine.state.jobs[JobId(name)].placement or ():
            node = str(nodes[slot.node].node.id)
            found[node] = found.get(node, 0) + slot.devices.bit_count()
        return found


def ended_value(number: int, state: str, **fields: Any) -> Json:
    """A job that has ended: Slurm still says on which node it was, and no longer which GPUs it had."""
    return running_value(number, gpus="", job_state=state, end_time=1794980531, **fields)


@pytest.mark.parametrize("alloc", ["cpu=2,mem=2M,node=1,billing=2,gres/gpu=2", "cpu=2,mem=2M,node=1,billing=2", ""])
def test_job_that_ran_between_two_looks_is_known_as_one_that_ran(alloc: str) -> None:
    twin = TwinOfTwoNodes()
    ended = dict(enumerate(("COMPLETED", "FAILED", "CANCELLED"), start=1))

    assert twin.look(*map(job_value, ended)) == dict.fromkeys("123", "waiting")
    twin.look(*(ended_value(number, state, tres_alloc_str=alloc) for number, state in ended.items()))
    assert twin.unseen == ["1", "2"]


def test_job_that_came_and_went_between_two_looks_is_known() -> None:
    twin = TwinOfTwoNodes()
    twin.ignore("2")

    twin.look(ended_value(1, "COMPLETED"), ended_value(2, "COMPLETED"))
    assert twin.unseen == ["1"]
    twin.look(ended_value(1, "COMPLETED"), ended_value(2, "COMPLETED"))
    assert twin.unseen == ["1"]


@pytest.mark.parametrize("alloc", ["cpu=2,mem=2M,node=1,gres/gpu=2", "cpu=2,mem=2M,node=1", ""])
def test_what_a_job_held_is_known_after_its_end(alloc: str) -> None:
    (job,) = read_jobs(json.dumps({"jobs": [ended_value(1, "COMPLETED", tres_alloc_str=alloc)]})).found

    assert [(share.node, share.gpus.count) for share in job.shares] == [("n1", 2)]


@pytest.mark.parametrize(
    ("gpus", "held"),
    [
        (("gpu:a100:4(IDX:0-3)",), {"n1": 2}),
        (("gpu:a100:4(IDX:0-3)", "gpu:a100:4(IDX:0-3)"), {"n1": 1, "n2": 1}),
    ],
    ids=["one node", "two nodes"],
)
@pytest.mark.parametrize("seen_waiting", [True, False])
def test_job_that_has_its_nodes_for_itself_runs_here_as_it_does_there(
    gpus: tuple[str, ...], held: dict[str, int], seen_waiting: bool
) -> None:
    twin = TwinOfTwoNodes()
    names = ("n1", "n2")[: len(gpus)]
    asks = {"tres_per_node": "", "tres_per_job": "gres:gpu:2", "shared": "none"}
    nodes = [
        {"nodename": name, "sockets": {"0": {"cores": {"0": "allocated"}}}, "memory_allocated": 2} for name in names
    ]
    runs = running_value(1, **asks, gres_detail=list(gpus), nodes=",".join(names))
    runs["job_resources"] = {"nodes": ",".join(names), "allocated_nodes": nodes}
    asked = None
    if seen_waiting:
        assert twin.look(job_value(1, **asks)) == {"1": "waiting"}
        asked = twin.job("1")

    assert twin.look(runs) == {"1": "running"}
    assert twin.held("1") == held
    assert twin.look(job_value(1, **asks, restart_cnt=1)) == {"1": "waiting"}
    assert asked is None or twin.job("1") == asked
    assert twin.look(runs) == {"1": "running"}
    ended = {**runs, "job_state": "COMPLETED", "gres_detail": []}
    assert twin.look(ended) == {"1": "succeeded"}
    assert not twin.is_outdated


def test_job_that_was_given_more_than_it_asked_for_is_what_it_holds() -> None:
    runs = running_value(1, gpus="gpu:a100:3(IDX:0,2-3)")
    seen, late = TwinOfTwoNodes(), TwinOfTwoNodes()

    assert late.look(runs) == {"1": "running"}
    assert (late.held("1"), late.is_outdated) == ({"n1": 3}, False)
    seen.look(job_value(1))
    assert seen.look(runs) == {"1": "waiting"}
    assert seen.is_outdated


@pytest.mark.parametrize(
    ("fields", "is_outdated"),
    [
        ({"time_limit": 3}, False),
        ({"partition": "other"}, False),
        ({"features": "fast"}, False),
        ({"excluded_nodes": "n2"}, False),
        ({"requeue": False}, False),
        ({"name": "other"}, False),
        ({"qos": "high"}, True),
        ({"account": "nlp"}, True),
        ({"tres_per_node": "gres:gpu:1", "tres_req_str": "cpu=1,mem=1M,node=1,gres/gpu=1"}, True),
        ({"shared": "none"}, True),
    ],
    ids=str,
)
def test_request_that_its_user_changes_is_changed_here_or_read_again(fields: Json, is_outdated: bool) -> None:
    twin, fresh = TwinOfTwoNodes(), TwinOfTwoNodes()
    twin.look(job_value(1), times=1)

    assert twin.look(job_value(1, **fields)) == {"1": "waiting"}
    fresh.look(job_value(1, **fields))
    assert (twin.job("1") == fresh.job("1"), twin.is_outdated) == (not is_outdated, is_outdated)


@pytest.mark.parametrize(
    "fields", [{"job_state": "TELEPORTING"}, {"nodes": "n[1-"}, {"time_limit": "soon"}, {"submit_time": float("inf")}]
)
def test_job_whose_record_can_not_be_understood_stays_as_it_was(fields: Json) -> None:
    twin = TwinOfTwoNodes()
    one, two = running_value(1), job_value(2)
    known = twin.look(one, two)

    assert twin.look({**one, **fields}, {**two, **fields}) == known == {"1": "running", "2": "waiting"}
    assert twin.look({"job_state": "?"}) == known
    assert twin.look(two) == {"1": "cancelled", "2": "waiting"}


def test_suspended_job_keeps_its_devices_and_does_not_run_on() -> None:
    twin = TwinOfTwoNodes()
    twin.look(running_value(1))
    stopped: Json = {"suspend_time": 1794980540, "pre_sus_time": 10}
    suspended = running_value(1, job_state="SUSPENDED", **stopped)

    assert twin.look(suspended) == {"1": "running"}
    done_s = twin.work_done("1")
    assert twin.look(suspended, times=20) == {"1": "running"}
    assert (twin.work_done("1"), twin.held("1"), twin.is_outdated) == (done_s, {"n1": 2}, False)
    twin.look(running_value(1, **stopped))
    assert twin.work_done("1") > done_s
    assert twin.is_outdated  # how long it has run is Slurm's to say


def test_job_that_was_suspended_has_run_for_less_than_since_its_start() -> None:
    times: Json = {"start_time": 1000, "suspend_time": 1100, "pre_sus_time": 40}
    plain, suspended, resumed = read_jobs(
        jobs(
            running_value(1, start_time=1000),
            running_value(2, job_state="SUSPENDED", **times),
            running_value(3, **times),
        )
    ).found

    assert [1500.0 - job.runs_since_s(1500.0) for job in (plain, suspended, resumed)] == [500.0, 40.0, 440.0]


@pytest.mark.parametrize(
    ("fields", "is_outdated"),
    [
        ({}, False),
        ({"state_reason": "Prolog"}, False),
        ({"end_time": 1794981000}, False),
        ({"time_limit": 30}, True),
        ({"time_limit": None}, True),
        ({"nodes": "n1", "gres_detail": ["gpu:a100:1(IDX:0)"]}, True),
        ({"job_state": "COMPLETING", "gres_detail": []}, False),
    ],
    ids=str,
)
@pytest.mark.parametrize("seen_waiting", [True, False])
def test_running_job_that_becomes_another_is_read_again(fields: Json, is_outdated: bool, seen_waiting: bool) -> None:
    twin = TwinOfTwoNodes()
    if seen_waiting:
        twin.look(job_value(1))
    twin.look(running_value(1))
    assert not twin.is_outdated

    twin.look(running_value(1, **fields))
    assert twin.is_outdated == is_outdated


def test_change_before_the_next_look_is_seen() -> None:
    twin = TwinOfTwoNodes()
    twin.look(running_value(1), times=1)

    twin.look(running_value(1, time_limit=30), times=1)
    assert twin.is_outdated


def test_limit_that_slurm_raises_at_the_start_is_the_jobs() -> None:
    twin = TwinOfTwoNodes()
    twin.look(job_value(1, time_limit=10))

    assert twin.look(running_value(1, time_limit=25)) == {"1": "running"}
    assert (twin.job("1").estimate_s, twin.is_outdated) == (1500.0, False)
