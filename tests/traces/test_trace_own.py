from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rota.core.model.job import (
    Checkpoint,
    DeviceType,
    Elastic,
    Job,
    JobId,
    Level,
    Locality,
    Role,
    TenantId,
)
from rota.core.model.labels import Operator, Requirement, Toleration, fault_in_apart
from rota.perf.speed.sharing_labels import fault_in_labels
from rota.traces import Outcome, Submission, Workload, read_trace, write_trace
from rota.traces.readers.own_schema import COLUMNS, PARSERS

ENCODINGS = ("jobs.parquet", "jobs.csv", "jobs.jsonl", "jobs.csv.gz", "jobs.JSONL.gz")

texts = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=8)
odd_texts = texts | st.sampled_from(['a,"b"', "two\nlines", "cr\r\nlf", "\ttab", "{}", "null", "[1]", "1.0", "true"])
names = odd_texts.filter(bool)
seconds = st.floats(0, 1e9)
unbounded = seconds | st.just(math.inf)

roles = st.builds(
    Role,
    name=names,
    count=st.integers(1, 64),
    device_milli=st.sampled_from([0, 1, 250, 999, 1000, 2000, 8000]),
    device_types=st.lists(names.map(DeviceType), max_size=3).map(tuple),
    device_memory_bytes=st.integers(0, 2**45),
    cpu_milli=st.integers(0, 10**6),
    memory_bytes=st.integers(0, 2**50),
    network_bps=st.integers(0, 10**12),
    disk_bps=st.integers(0, 10**12),
    requires=st.lists(
        st.lists(
            st.builds(
                Requirement,
                key=odd_texts,
                operator=st.sampled_from([each.value for each in Operator]),
                values=st.lists(odd_texts, max_size=2).map(tuple),
            ),
            max_size=2,
        ).map(tuple),
        max_size=2,
    ).map(tuple),
    tolerates=st.lists(st.builds(Toleration, key=st.none() | odd_texts, value=st.none() | odd_texts), max_size=2).map(
        tuple
    ),
)


@st.composite
def jobs(draw: st.DrawFn, id: str, earlier: tuple[str, ...]) -> Job:
    all_roles = tuple(draw(st.lists(roles, min_size=1, max_size=3, unique_by=lambda role: role.name)))
    tasks = all_roles[0].count
    labels = tuple(draw(st.lists(st.tuples(odd_texts, odd_texts), max_size=3)))
    if fault_in_apart(labels) or fault_in_labels(labels, all_roles[0].device_milli):
        labels = ()
    limit = draw(st.none() | st.integers(1, 99))
    bounds = st.builds(Elastic, min_tasks=st.integers(1, tasks), max_tasks=st.integers(tasks, 100))
    return Job(
        id=JobId(id),
        roles=all_roles,
        name=draw(odd_texts),
        tenant=TenantId(draw(names)),
        user=draw(odd_texts),
        priority=draw(st.integers(-1, 1000)),
        work=draw(st.none() | seconds),
        estimate_s=draw(st.none() | unbounded),
        model=draw(st.none() | names),
        locality=draw(
            st.none() | st.builds(Locality, level=st.sampled_from(Level), hard=st.booleans(), relax_after_s=unbounded)
        ),
        exclusive=draw(st.booleans()),
        preemptible=draw(st.booleans()),
        elastic=draw(st.none() | bounds) if len(all_roles) == 1 else None,
        depends_on=tuple(JobId(name) for name in draw(st.lists(st.sampled_from(earlier), unique=True, max_size=3)))
        if earlier
        else (),
        deadline_s=draw(st.none() | unbounded),
        time_limit_s=draw(st.none() | st.floats(0.001, 1e9)),
        max_restarts=draw(st.none() | st.integers(0, 99)),
        checkpoint=draw(st.none() | st.builds(Checkpoint, interval_s=seconds, grace_s=seconds)),
        labels=labels,
        array=None if limit is None else JobId(draw(names)),
        array_limit=limit,
    )


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    ids = tuple(draw(st.lists(names, min_size=1, max_size=5, unique=True)))
    times = sorted(draw(st.lists(seconds, min_size=len(ids), max_size=len(ids))))
    submissions = tuple(
        Submission(
            job=draw(jobs(id, ids[:index])),
            submit_s=time,
            outcome=draw(st.sampled_from(Outcome)),
            ends_at=draw(st.floats(0, 1)),
        )
        for index, (id, time) in enumerate(zip(ids, times, strict=True))
    )
    return Workload(submissions=submissions, source="x", format="rota", counts_steps=draw(st.booleans()))


@pytest.mark.slow
@pytest.mark.parametrize("name", ENCODINGS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(workload=workloads())
def test_nothing_is_lost_between_writing_and_reading(
    name: str, tmp_path_factory: pytest.TempPathFactory, workload: Workload
) -> None:
    path = tmp_path_factory.mktemp("trip") / name
    write_trace(workload, path)

    back = read_trace(path)

    assert back.submissions == workload.submissions
    assert back.counts_steps is workload.counts_steps
    assert (back.format, back.skipped, back.left_out) == ("rota", 0, 0)


@pytest.mark.parametrize("name", ENCODINGS)
def test_same_workload_gives_the_same_bytes(tmp_path: Path, name: str) -> None:
    workload = Workload(
        submissions=(Submission(job=Job(id=JobId("a"), work=1.5, labels=(("k", "v"),)), submit_s=0.0),),
        source="x",
        format="rota",
    )
    first, second = tmp_path / name, tmp_path / f"again-{name}"
    write_trace(workload, first)
    write_trace(workload, second)

    assert first.read_bytes() == second.read_bytes()
    if name.endswith(".gz"):
        assert first.read_bytes()[4:8] == bytes(4), "the time of writing is part of the file"


def test_written_text_is_plain_to_read(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    submission = Submission(
        job=Job(id=JobId("a"), roles=(Role(count=2, cpu_milli=500),), work=60.0, exclusive=True), submit_s=1.5
    )
    write_trace(Workload(submissions=(submission,), source="x", format="blox"), path)

    assert path.read_text() == (
        "id,submit_s,tenant,gpus,work,work_unit,outcome,exclusive,roles\n"
        'a,1.5,default,2.0,60.0,seconds,succeeded,true,"[{""name"":""worker"",""count"":2,'
        '""device_milli"":1000,""cpu_milli"":500}]"\n'
    )


def test_bad_row_of_parquet_is_named_by_its_number(tmp_path: Path) -> None:
    import polars

    path = tmp_path / "jobs.parquet"
    polars.DataFrame({"id": ["a", "b"], "submit_s": [0.0, -1.0]}).write_parquet(path)

    with pytest.raises(Exception, match=r"jobs.parquet:2: submit_s is -1.0; expected a number of 0 or more$"):
        read_trace(path)


def test_every_column_can_be_parsed() -> None:
    assert list(COLUMNS) == list(PARSERS)


def test_every_field_of_a_job_has_a_column() -> None:
    spelled_otherwise = {"gpu_milli": "gpus", "elastic": "elastic_min", "checkpoint": "checkpoint_interval_s"}

    for field in fields(Job):
        assert spelled_otherwise.get(field.name, field.name) in COLUMNS
