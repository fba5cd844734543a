"""Events, decisions, reasons, jobs and clusters as JSON and back, unchanged."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.codec import values
from rota.core.messages.decisions import Cause, Decision, Move, Resize, Resume, Start, Stop, Suspend
from rota.core.messages.events import CheckpointChanged, Event, JobArrived, JobUpdated, NodeAdded, PromisesChanged
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.cluster import Cluster
from rota.core.model.job import Job, JobId, Locality, TenantId
from rota.core.model.placement import Placement, Slot
from rota.core.model.tenants import ANY_TYPE, Share, TenantPlan
from rota.files import read_cluster
from strategies import clusters, jobs

HALL = Path(__file__).parents[1] / "conformance" / "own" / "config" / "hall.yaml"

TIMES = st.floats(0, 1e10)
NAMES = st.text(min_size=1).map(JobId)


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


@pytest.mark.slow
@given(job=jobs(3, 3), labels=st.lists(st.tuples(st.text(), st.text())), name=st.text())
def test_jobs(job: Job, labels: list[tuple[str, str]], name: str) -> None:
    labelled = replace(job, labels=tuple(labels), name=name)

    assert values.decode_job(through_json(values.encode_job(labelled))) == labelled


def test_what_is_at_its_default_is_left_out() -> None:
    assert values.encode_job(Job(id=JobId("a"))) == {"id": "a", "roles": [{}]}


def test_endless_wish_survives() -> None:
    job = Job(id=JobId("a"), locality=Locality(hard=True, relax_after_s=math.inf))

    assert values.decode_job(through_json(values.encode_job(job))) == job


@given(cluster=clusters())
def test_clusters(cluster: Cluster) -> None:
    assert values.decode_cluster(through_json(values.encode_cluster(cluster))) == cluster


BY_HAND = (CheckpointChanged, JobArrived, JobUpdated, NodeAdded, PromisesChanged)
PLAIN = [kind for kind in get_args(Event) if kind not in BY_HAND]


@pytest.mark.slow
@pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_events(kind: Any, data: st.DataObject) -> None:
    """Every kind of event, its fields drawn by their types."""
    event = data.draw(st.builds(kind).filter(lambda event: "nan" not in repr(event)))

    assert values.decode_event(through_json(values.encode_event(event))) == event


@given(job=jobs(0, 0), held=st.booleans(), rate=st.floats(0.1, 100))
def test_arrivals(job: Job, held: bool, rate: float) -> None:
    event = JobArrived(job, held, rate)

    assert values.decode_event(through_json(values.encode_event(event))) == event


@given(job=jobs(0, 0), kind=st.sampled_from([JobUpdated, CheckpointChanged]))
def test_updates(job: Job, kind: type[JobUpdated | CheckpointChanged]) -> None:
    event = kind(job.id, job)

    assert values.decode_event(through_json(values.encode_event(event))) == event


@given(cluster=clusters())
def test_added_nodes(cluster: Cluster) -> None:
    event = NodeAdded(cluster.nodes[0])

    assert values.decode_event(through_json(values.encode_event(event))) == event


def test_promises() -> None:
    tenants = TenantPlan(shares={TenantId("a"): Share(guaranteed={ANY_TYPE: 4}, per_user=2)}, min_run_s=60.0)
    for event in (PromisesChanged(read_cluster(str(HALL)).cells, None), PromisesChanged(None, tenants)):
        assert values.decode_event(through_json(values.encode_event(event))) == event


def test_every_event_has_a_name_of_its_own() -> None:
    assert len(set(values._EVENT_NAMES.values())) == len(get_args(Event)) == len(values._EVENT_NAMES)


SLOTS = st.builds(
    Slot,
    node=st.integers(0, 3),
    devices=st.integers(0, 2**70),
    tasks=st.integers(1, 9),
    role=st.integers(0, 3),
    milli=st.integers(1, 1000),
    in_turn=st.booleans(),
)
PLACEMENTS: st.SearchStrategy[Placement] = st.lists(SLOTS, max_size=4).map(tuple)


@given(
    decision=st.one_of(
        st.builds(Start, job_id=NAMES, placement=PLACEMENTS),
        st.builds(Resize, job_id=NAMES, placement=PLACEMENTS),
        st.builds(Move, job_id=NAMES, placement=PLACEMENTS),
        st.builds(Resume, job_id=NAMES, placement=PLACEMENTS),
        st.builds(Suspend, job_id=NAMES),
        st.builds(Stop, job_id=NAMES, cause=st.sampled_from(Cause)),
    )
)
def test_decisions(decision: Decision) -> None:
    names = ["a", "b", "c", "d"]
    encoded = through_json(values.encode_decision(decision, names))

    assert values.decode_decision(encoded, {name: index for index, name in enumerate(names)}) == decision


@given(
    reason=st.builds(
        Reason,
        code=st.sampled_from(ReasonCode),
        need_milli=st.integers(0),
        free_milli=st.integers(0),
        job=st.none() | NAMES,
        until_s=st.none() | TIMES,
    )
)
def test_reasons(reason: Reason) -> None:
    assert values.decode_reason(through_json(values.encode_reason(reason))) == reason
