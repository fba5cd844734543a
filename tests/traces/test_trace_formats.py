from __future__ import annotations

import gc
import gzip
from dataclasses import fields, replace
from pathlib import Path

import pytest

from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import DeviceType, Job, JobId, NodeId, Role, TenantId
from rota.traces import FORMATS, Outcome, read_alibaba_nodes, read_trace
from rota.traces.assemble import gang, plain_job, shape_of
from traces.trace_samples import BLOX, HELIOS, PHILLY, SAMPLES, SLURM, TIRESIAS, Sample, sub, write

each_sample = pytest.mark.parametrize(
    ("format", "sample"),
    [(key[0], sample) for key, sample in SAMPLES.items()],
    ids=[key[1] for key in SAMPLES],
)


@each_sample
def test_sample_becomes_the_submissions_it_describes(tmp_path: Path, format: str, sample: Sample) -> None:
    path = write(tmp_path, sample.text)

    workload = read_trace(path, format=format)

    assert workload.submissions == sample.expected
    assert [entry.job.gpu_milli for entry in workload.submissions] == [entry.job.gpu_milli for entry in sample.expected]
    assert (workload.format, workload.source) == (format, str(path))
    assert (workload.skipped, workload.left_out) == (0, sample.left_out)
    assert workload.counts_steps is sample.counts_steps


@each_sample
@pytest.mark.parametrize("name", ["philly.csv", "x", "jobs.gz"])
def test_format_is_recognised_by_content_whatever_the_name(
    tmp_path: Path, format: str, sample: Sample, name: str
) -> None:
    assert read_trace(write(tmp_path, sample.text, name)).format == format


@each_sample
def test_compressed_file_reads_the_same(tmp_path: Path, format: str, sample: Sample) -> None:
    path = tmp_path / "jobs.txt.gz"
    path.write_bytes(gzip.compress(sample.text.encode()))

    assert read_trace(path).submissions == sample.expected


@each_sample
def test_byte_order_mark_is_no_part_of_the_first_column(tmp_path: Path, format: str, sample: Sample) -> None:
    workload = read_trace(write(tmp_path, "\ufeff" + sample.text))

    assert (workload.format, workload.submissions) == (format, sample.expected)


def test_every_format_has_a_sample() -> None:
    assert {format for format, _ in SAMPLES} == set(FORMATS)


def test_alike_jobs_share_their_roles(tmp_path: Path) -> None:
    rows = "".join(f"{index},4,0,1\n" for index in range(3))

    submissions = read_trace(write(tmp_path, f"job_id,num_gpu,submit_time,duration\n{rows}")).submissions

    assert len({id(entry.job.roles) for entry in submissions}) == 1


def test_ties_keep_the_order_of_the_file(tmp_path: Path) -> None:
    rows = "".join(f"{name},1,50,1\n" for name in "dbca")

    submissions = read_trace(write(tmp_path, f"job_id,num_gpu,submit_time,duration\n{rows}z,1,3,1\n")).submissions

    assert [entry.job.id for entry in submissions] == ["z", "d", "b", "c", "a"]


def test_column_order_does_not_matter(tmp_path: Path) -> None:
    text = "duration,job_id,submit_time,num_gpu\n60,0,130,2\n7040.25,1,131.5,1\n"

    assert read_trace(write(tmp_path, text)).submissions == BLOX.expected


def test_time_zones_are_taken_into_account(tmp_path: Path) -> None:
    text = HELIOS.text.replace("2020-04-01 00:00:00,2020", "2020-04-01 01:00:00+01:00,2020")
    text = text.replace("2020-04-01 00:00:10,2020", "2020-04-01 00:00:10Z,2020")

    submissions = read_trace(write(tmp_path, text)).submissions

    assert [(entry.job.id, entry.submit_s) for entry in submissions][:2] == [("12", 0.0), ("11", 10.0)]


def test_slurm_reads_elapsed_or_end_where_raw_seconds_are_missing(tmp_path: Path) -> None:
    header = "JobID|Submit|Start|{}|State|ReqTRES\n"
    row = "1|2024-03-01T10:00:00|2024-03-01T10:00:00|{}|TIMEOUT|cpu=1,gres/gpu=2\n"
    expected = (sub("1", 0.0, 90061.0, role=Role(device_milli=2000, cpu_milli=1000), outcome=Outcome.FAILED),)

    for column, value in (("Elapsed", "1-01:01:01"), ("End", "2024-03-02T11:01:01")):
        text = header.format(column) + row.format(value)
        assert read_trace(write(tmp_path, text)).submissions == expected


def test_slurm_array_het_and_old_gres_notation(tmp_path: Path) -> None:
    text = (
        "JobID|Submit|Start|ElapsedRaw|State|AllocGRES|ReqMem|NCPUS|NNodes\n"
        "7+0|2024-03-01T10:00:00|2024-03-01T10:00:00|5|COMPLETED|gpu:k80:4|2Gc|2|2\n"
        "8|2024-03-01T10:00:00|2024-03-01T10:00:00|5|OUT_OF_MEMORY|gpu:3|512Mn|2|2\n"
    )

    jobs = [entry.job for entry in read_trace(write(tmp_path, text)).submissions]

    k80 = (DeviceType("k80"),)
    assert jobs[0].roles == (
        Role(count=2, device_milli=2000, device_types=k80, cpu_milli=1000, memory_bytes=2 * 2**30),
    )
    assert jobs[1].roles == (Role(count=3, cpu_milli=666, memory_bytes=2**30 // 3),)


def test_skipped_lines_are_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    text = PHILLY.text + "never,1,1,1,red\n2020-01-01 00:00:09,-1,1,1,red\n2020-01-01 00:00:09\n"

    workload = read_trace(write(tmp_path, text), skip_bad_lines=True)

    assert (workload.skipped, workload.submissions) == (3, PHILLY.expected)


def test_skipping_drops_the_later_of_two_alike_ids(tmp_path: Path) -> None:
    workload = read_trace(write(tmp_path, TIRESIAS.text + "5,8,0,1,x,1,1\n"), skip_bad_lines=True)

    assert (workload.skipped, workload.submissions) == (1, TIRESIAS.expected)


def test_left_out_jobs_are_not_bad_lines(tmp_path: Path) -> None:
    workload = read_trace(write(tmp_path, SLURM.text), skip_bad_lines=True)

    assert (workload.skipped, workload.left_out) == (0, 2)


def test_reading_leaves_garbage_collection_as_it_was(tmp_path: Path) -> None:
    path = write(tmp_path, BLOX.text)
    assert gc.isenabled()
    read_trace(path)
    assert gc.isenabled()
    with pytest.raises(RotaError):
        read_trace(path, format="helios")
    assert gc.isenabled()


def test_alibaba_node_list_becomes_a_cluster(tmp_path: Path) -> None:
    text = "sn,cpu_milli,memory_mib,gpu,model\nn-1,96000,1024,8,V100M32\nn-2,32000,512,0,\n"

    assert read_alibaba_nodes(write(tmp_path, text)) == Cluster(
        nodes=(
            Node(
                id=NodeId("n-1"),
                device_type=DeviceType("V100M32"),
                devices=8,
                cpu_milli=96000,
                memory_bytes=2**30,
            ),
            Node(id=NodeId("n-2"), device_type=DeviceType("cpu"), cpu_milli=32000, memory_bytes=2**29),
        )
    )


def test_job_put_together_the_short_way_equals_the_constructed_one() -> None:
    given = {
        "tenant": TenantId("t"),
        "user": "u",
        "name": "n",
        "model": "m",
        "estimate_s": 9.0,
        "labels": (("a", "b"),),
    }
    quick = plain_job("x", gang(3), 5.0, **given)  # type: ignore[arg-type]  # a table of keywords
    full = Job(id=JobId("x"), roles=(Role(count=3),), work=5.0, **given)  # type: ignore[arg-type]  # as above

    assert type(quick) is Job
    for field in fields(Job):
        assert getattr(quick, field.name) == getattr(full, field.name), field.name
    assert (quick == full, hash(quick) == hash(full), repr(quick) == repr(full)) == (True, True, True)
    assert replace(quick, priority=3) == replace(full, priority=3)
    assert plain_job("x", shape_of(Role()), 0.0) == Job(id=JobId("x"), work=0.0)
