"""Steps that make a trace of another, and readers that take columns as they are."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from builders import job
from rota.cli.main import status
from rota.core.errors import RotaError
from rota.traces.formats import read_trace
from rota.traces.readers.any_csv import parse_columns, read_columns
from rota.traces.steps import STEPS, StepContext, transform
from rota.traces.transform import offered_load
from rota.traces.workload import Outcome, Submission, Workload


def _workload(*jobs: Submission) -> Workload:
    return Workload(submissions=jobs, source="test", format="rota")


TEN = _workload(
    *(
        Submission(
            job=job(str(n), workers=1 + n % 4, work=100.0 * (n + 1), tenant="a" if n % 2 else "b"), submit_s=60.0 * n
        )
        for n in range(10)
    )
)


def _apply(*steps: str, workload: Workload = TEN, devices: int | None = 16) -> Workload:
    context = StepContext(seconds=float, read=lambda path: workload, devices=devices)
    return transform(workload, steps, context)


def _ids(workload: Workload) -> list[str]:
    return [str(each.job.id) for each in workload.submissions]


def test_load_is_that_which_was_asked_for() -> None:
    assert offered_load(_apply("load=0.8"), 16) == pytest.approx(0.8)
    assert _ids(_apply("load=0.8")) == _ids(TEN)


def test_load_needs_the_devices() -> None:
    with pytest.raises(RotaError, match=r"load=0\.8: state the devices of the cluster with --gpus N"):
        _apply("load=0.8", devices=None)


@pytest.mark.parametrize(
    ("steps", "ids"),
    [
        (["time=120..300"], ["2", "3", "4"]),
        (["time=480.."], ["8", "9"]),
        (["jobs=2..5"], ["2", "3", "4"]),
        (["gpus=4..8"], ["3", "7"]),
        (["duration=..300"], ["0", "1", "2"]),
        (["gpus=..2", "jobs=0..3"], ["0", "1", "4"]),
    ],
)
def test_jobs_are_cut(steps: list[str], ids: list[str]) -> None:
    assert _ids(_apply(*steps)) == ids


def test_slice_begins_at_time_0() -> None:
    assert _apply("time=120..300").submissions[0].submit_s == 0.0


def test_range_from_the_larger_to_the_smaller_is_refused() -> None:
    with pytest.raises(RotaError, match="write the smaller one first"):
        _apply("clip=500..200")


def test_run_times_are_clipped() -> None:
    works = [each.job.work for each in _apply("clip=200..500").submissions]

    assert works[:3] == [200.0, 200.0, 300.0]
    assert works[-1] == 500.0


def test_samples_of_one_seed_are_the_same() -> None:
    assert _ids(_apply("sample=0.5")) == _ids(_apply("sample=0.5"))
    assert 0 < len(_ids(_apply("sample=0.5"))) < 10


def test_tenants_are_renamed() -> None:
    tenants = {str(each.job.tenant) for each in _apply("tenants=a:x,*:y").submissions}

    assert tenants == {"x", "y"}
    assert len({each.job.tenant for each in _apply("tenants=3").submissions}) == 3


def test_merged_jobs_keep_apart_if_ids_clash() -> None:
    merged = _apply("merge=other.csv")

    assert len(set(_ids(merged))) == 20
    assert [each.submit_s for each in merged.submissions] == sorted(each.submit_s for each in merged.submissions)


def test_dependencies_on_jobs_left_out_are_dropped() -> None:
    two = _workload(
        Submission(job=job("a", work=1.0), submit_s=0.0),
        Submission(job=job("b", work=1.0, depends_on=("a",)), submit_s=5.0),
    )

    assert _apply("jobs=1..", workload=two).submissions[0].job.depends_on == ()


def test_deadline_moves_with_its_job() -> None:
    late = _workload(
        Submission(job=job("a", work=1.0), submit_s=0.0),
        Submission(job=job("b", work=1.0, deadline_s=50.0), submit_s=20.0),
    )

    moved = _apply("stretch=2", workload=late).submissions[1]

    assert (moved.submit_s, moved.job.deadline_s) == (40.0, 70.0)


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("lod=1", "unknown step 'lod'; did you mean 'load'?"),
        ("load", "write it as load=F"),
        ("load=much", "'much' is not a number"),
        ("jobs=7", "write a range, such as jobs=1..8"),
        ("sample=2", "at most 1"),
        ("tenants=a", "write OLD:NEW"),
        ("time=1000..2000", "no job is left"),
    ],
)
def test_mistakes_are_named(step: str, told: str) -> None:
    with pytest.raises(RotaError, match=told.replace("?", r"\?")):
        _apply(step)


def test_command_writes_what_the_steps_make(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "jobs.csv"
    source.write_text("id,submit_s,work,gpus\na,0,10,1\nb,1,20,2\n")

    assert status(["trace", "transform", str(source), str(tmp_path / "out.csv"), "gpus=2..", "stretch=3"]) == 0

    assert _ids(read_trace(tmp_path / "out.csv")) == ["b"]
    assert status(["trace", "transform", "--steps"]) == 0
    assert all(f"{name}=" in capsys.readouterr().out for name in list(STEPS)[:1])


def test_any_csv_is_read_by_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("when;secs;n;who;end\n2024-01-01 00:00:10;60;2;ann;OK\n2024-01-01 00:00:00;30;0.5;bob;JOB_KILLED\n")

    found = read_columns(path, parse_columns("submit=when,duration=secs,gpus=n,user=who,state=end"))

    assert [(each.submit_s, each.job.work, each.job.gpus, each.job.user) for each in found.submissions] == [
        (0.0, 30.0, 0.5, "bob"),
        (10.0, 60.0, 2.0, "ann"),
    ]
    assert found.submissions[0].outcome is Outcome.CANCELLED


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ("submit=t", "duration is missing"),
        ("duration=d", "submit is missing"),
        ("submit=t,duraton=d", "did you mean 'duration'"),
        ("submit", "is not NAME=COLUMN"),
        ("submit=t,duration=nope", "the column 'nope' is missing; it has t, d"),
    ],
)
def test_columns_that_are_wrong_are_named(tmp_path: Path, columns: str, told: str) -> None:
    (tmp_path / "log.csv").write_text("t,d\n1,2\n")

    with pytest.raises(RotaError, match=told):
        read_columns(tmp_path / "log.csv", parse_columns(columns))


def test_unknown_file_names_the_nearest_format_and_what_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("job_id,user,vc,gpu_num,cpu_num,state,submit_time,duration\n")

    with pytest.raises(RotaError, match="nearest is helios, which also needs node_num"):
        read_trace(path)


def test_pai_list_is_read(tmp_path: Path) -> None:
    path = tmp_path / "pai.csv"
    path.write_text(
        "job_id,user,gpu_type,num_inst,num_gpu,num_cpu,submit_time,duration,group_gpu_dur\n"
        "1,u1,T4,2,0.5,6.0,100,60,50.5\n2,u2,MISC,1,2.0,12.0,40,30,\n"
    )

    found = read_trace(path)

    assert found.format == "pai2020"
    second, first = (each.job for each in found.submissions)
    assert (first.gpus, first.tasks, first.roles[0].device_types, first.estimate_s) == (1.0, 2, ("T4",), 50.5)
    assert first.roles[0].cpu_milli == 6000
    assert (second.gpus, second.roles[0].device_types, str(second.tenant)) == (2.0, (), "u2")


def test_pai_raw_tables_are_joined(tmp_path: Path) -> None:
    (tmp_path / "pai_task_table.csv").write_text(
        "j1,worker,2,Terminated,100.0,160.0,600.0,29.3,50.0,T4\n"
        "j1,ps,1,Terminated,100.0,150.0,600.0,10.0,,\n"
        "j2,worker,1,Running,50.0,,600.0,10.0,100.0,V100\n"
        "j3,worker,1,Failed,20.0,30.0,600.0,10.0,200.0,MISC\n"
    )
    (tmp_path / "pai_job_table.csv").write_text("j1,i1,ann,Terminated,90.0,160.0\nj3,i3,bob,Failed,10.0,30.0\n")

    found = read_trace(tmp_path / "pai_task_table.csv")

    assert (found.format, found.left_out) == ("pai2020-raw", 1)
    failed, done = found.submissions
    assert (failed.submit_s, failed.outcome, failed.job.gpus) == (0.0, Outcome.FAILED, 2.0)
    assert (done.submit_s, done.job.work, done.job.gpus, done.job.user) == (80.0, 60.0, 1.0, "ann")
    assert [(role.name, role.count) for role in done.job.roles] == [("worker", 2), ("ps", 1)]


def test_pai_tags_say_what_was_asked_for(tmp_path: Path) -> None:
    """The type of a task is the one that it got; most users asked for none."""
    (tmp_path / "pai_task_table.csv").write_text(
        "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
        "any,tensorflow,1.0,Terminated,100.0,160.0,600.0,29.296875,50.0,T4\n"
        "one,tensorflow,1.0,Terminated,120.0,160.0,600.0,29.296875,100.0,V100M32\n"
        "untagged,tensorflow,1.0,Terminated,130.0,160.0,600.0,29.296875,100.0,P100\n"
    )
    (tmp_path / "pai_job_table.csv").write_text(
        "".join(f"{name},i-{name},ann,Terminated,90.0,160.0\n" for name in ("any", "one", "untagged"))
    )
    (tmp_path / "pai_group_tag_table.csv").write_text("i-any,ann,,g1,\ni-one,ann,V100M32,g2,bert\n")

    found = {str(each.job.id): each.job for each in read_trace(tmp_path / "pai_task_table.csv").submissions}

    assert {name: job.roles[0].device_types for name, job in found.items()} == {
        "any": (),
        "one": ("V100M32",),
        "untagged": ("P100",),
    }
    assert (found["any"].name, found["one"].name, found["untagged"].name) == ("g1", "g2", "tensorflow")
    assert found["one"].labels == (("workload", "bert"),)
    assert found["any"].roles[0].cpu_milli == 6000


def test_columns_have_units(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("ts,run,gpu,cpu,mem,left:ms\n1700000000000,90,50,200,512,1\n1700000060000,1.5,200,800,2048,2\n")
    given = "submit=ts:ms,duration=run:min,gpus=gpu:%,cpus=cpu:%,memory=mem:MiB,name=left:ms"

    part, two = (each for each in read_columns(path, parse_columns(given)).submissions)

    assert (part.submit_s, part.job.work, part.job.gpus, part.job.name) == (0.0, 5400.0, 0.5, "1")
    assert (part.job.roles[0].cpu_milli, part.job.roles[0].memory_bytes) == (2000, 512 * 2**20)
    assert (two.submit_s, two.job.work, two.job.gpus, two.job.tasks) == (60.0, 90.0, 2.0, 2)
    assert (two.job.roles[0].cpu_milli, two.job.roles[0].memory_bytes) == (4000, 2**30), "divided among the tasks"
    with pytest.raises(RotaError, match="unknown unit 'hours'; known: us, ms, s, min, h, d"):
        read_columns(path, {"submit": "ts:hours", "duration": "run"})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0),
        ("00:01:30", 90.0),
        ("1-02:00:00", 93600.0),
        ("0 days 00:01:30.5", 90.5),
        ("2 days, 1:00:00", 176400.0),
    ],
)
def test_durations_may_be_hours_minutes_and_seconds(tmp_path: Path, text: str, seconds: float) -> None:
    (tmp_path / "log.csv").write_text(f't,d\n0,"{text}"\n')

    (found,) = read_columns(tmp_path / "log.csv", parse_columns("submit=t,duration=d")).submissions

    assert found.job.work == seconds


def test_traces_go_through_a_pipe(tmp_path: Path) -> None:
    """Steps of several commands, as of one; a stream can be read only once, and a trace is looked at before."""
    lines = [f"j{number},{60 * number},100,{gpus}" for number, gpus in enumerate((1, 8, 4, 2))]
    (tmp_path / "a.csv").write_text("\n".join(["id,submit_s,work,gpus", *lines]) + "\n")
    rota = f"{sys.executable} -c 'from rota.cli.main import run; run()'"
    script = (
        f'set -eo pipefail; rota() {{ {rota} "$@"; }}; rota trace transform a.csv - gpus=1..4 '
        "| rota trace transform - - jobs=0..2 > piped.csv; "
        "rota trace transform <(cat a.csv) whole.csv gpus=1..4 jobs=0..2; rota trace describe - < whole.csv"
    )

    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "piped.csv").read_text() == (tmp_path / "whole.csv").read_text()
    assert re.search(r"jobs +2", done.stdout)
