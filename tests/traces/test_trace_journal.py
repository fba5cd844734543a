from __future__ import annotations

import math
from pathlib import Path

import pytest

from builders import cluster, job, node, on
from rota.core.errors import RotaError
from rota.core.messages.decisions import Cause, Start, Stop
from rota.core.messages.events import (
    CheckpointChanged,
    End,
    JobArrived,
    JobCancelled,
    JobEnded,
    JobHeld,
    Resized,
    Started,
    Stopped,
)
from rota.core.model.job import Checkpoint, Elastic, JobId
from rota.scenario import Scenario
from rota.store.journal import JournalHeader, JournalWriter
from rota.traces.formats import read_trace
from rota.traces.workload import Outcome


def written(path: Path) -> Path:
    a, b, c = JobId("a"), JobId("b"), JobId("c")
    header = JournalHeader(scenario=Scenario(policies=("fifo",), placement="any", cluster=cluster(node("n1"))))
    with JournalWriter(path, header) as journal:
        journal.append(100.0, [JobArrived(job("a")), JobArrived(job("b")), JobArrived(job("c"))], [], [])
        journal.append(101.0, [Started(a, 1.0, 101.0), Started(b, 1.0, 101.0)], [Stop(b, Cause.PREEMPTED)], [])
        journal.append(105.0, [Stopped(b, 4.0), JobEnded(a, End.FAILED, 0.0)], [], [])
        journal.append(110.0, [Started(b, 1.0, 110.0), JobCancelled(c)], [], [])
        journal.append(116.0, [JobEnded(b, End.SUCCEEDED, 10.0)], [], [])
    return path


def test_jobs_of_a_journal_run_as_long_as_they_ran(tmp_path: Path) -> None:
    workload = read_trace(written(tmp_path / "journal.jsonl"))

    found = [(each.job.id, each.submit_s, each.job.work, each.outcome) for each in workload.submissions]
    assert found == [("a", 0.0, 4.0, Outcome.FAILED), ("b", 0.0, 6.0, Outcome.SUCCEEDED)]
    assert (workload.format, workload.left_out) == ("journal", 1)
    assert workload.cluster == cluster(node("n1"))


def test_jobs_that_had_not_ended_are_known_to_run_longer(tmp_path: Path) -> None:
    """A job that starts over is known by its longest run; one that is held, or waits for another, never ran."""
    never = Checkpoint(interval_s=math.inf)
    header = JournalHeader(scenario=Scenario(policies=("fifo",), placement="any", cluster=cluster(node("n1"))))
    jobs = [job("runs"), job("again", checkpoint=never), job("waits"), job("held"), job("needs", depends_on=("waits",))]
    with JournalWriter(tmp_path / "journal.jsonl", header) as journal:
        journal.append(10.0, [JobArrived(job("a")), *(JobArrived(each) for each in jobs)], [], [])
        journal.append(11.0, [Started(JobId(name), 1.0, 11.0) for name in ("a", "runs", "again")], [], [])
        journal.append(18.0, [Stopped(JobId("again"), 0.0), JobHeld(JobId("held"))], [], [])
        journal.append(20.0, [JobEnded(JobId("a"), End.SUCCEEDED, 9.0), Started(JobId("again"), 1.0, 20.0)], [], [])
        journal.append(24.0, [], [], [])

    workload = read_trace(tmp_path / "journal.jsonl")

    assert [each.job.id for each in workload.submissions] == ["a"]
    known = {each.job.id: (each.submit_s, each.target) for each in workload.unfinished}
    assert known == {"runs": (0.0, 13.0), "again": (0.0, 7.0), "waits": (0.0, 0.0)}
    assert workload.left_out == len(jobs)


def test_price_of_a_suspension_comes_from_the_journal(tmp_path: Path) -> None:
    price = Checkpoint(interval_s=0.0, grace_s=4.0, suspend_s=4.0, resume_s=2.0)
    never = Checkpoint(interval_s=math.inf)
    header = JournalHeader(scenario=Scenario(policies=("fifo",), placement="any", cluster=cluster(node("n1"))))
    with JournalWriter(tmp_path / "journal.jsonl", header) as journal:
        journal.append(0.0, [JobArrived(job("a", checkpoint=never))], [], [])
        journal.append(1.0, [Started(JobId("a"), 1.0, 1.0)], [], [])
        journal.append(2.0, [CheckpointChanged(JobId("a"), job("a", checkpoint=price))], [], [])
        journal.append(8.9, [CheckpointChanged(JobId("a"), job("a", checkpoint=never))], [], [])
        journal.append(9.0, [JobEnded(JobId("a"), End.SUCCEEDED, 8.0)], [], [])

    (found,) = read_trace(tmp_path / "journal.jsonl").submissions
    assert found.job.checkpoint == price


def test_what_suspensions_took_counts_more_than_their_price(tmp_path: Path) -> None:
    a, price = JobId("a"), Checkpoint(interval_s=0.0, grace_s=4.0, suspend_s=4.0, resume_s=2.0)
    header = JournalHeader(scenario=Scenario(policies=("fifo",), placement="any", cluster=cluster(node("n1"))))
    with JournalWriter(tmp_path / "journal.jsonl", header) as journal:
        journal.append(0.0, [JobArrived(job("a"))], [Start(a, on("n1", 1))], [])
        journal.append(1.0, [Started(a, 1.0, 1.0), CheckpointChanged(a, job("a", checkpoint=price))], [], [])
        for order_s, stop_s in ((10.0, 12.0), (30.0, 33.0)):
            journal.append(order_s, [], [Stop(a, Cause.PREEMPTED)], [])
            journal.append(stop_s, [Stopped(a, order_s)], [Start(a, on("n1", 1))], [])
            journal.append(stop_s + 1.0, [Started(a, 1.0, stop_s + 1.5)], [], [])
        journal.append(60.0, [JobEnded(a, End.SUCCEEDED, 50.0)], [], [])

    (found,) = read_trace(tmp_path / "journal.jsonl").submissions
    assert found.job.checkpoint == Checkpoint(interval_s=0.0, grace_s=4.0, suspend_s=2.5, resume_s=1.5)


def test_broken_step_is_told_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path / "journal.jsonl")
    path.write_text(path.read_text() + '{"n": 5}\n')

    with pytest.raises(RotaError, match=r"journal.jsonl:7: a broken step"):
        read_trace(path)


def test_work_of_a_resized_job_counts_by_its_speed(tmp_path: Path) -> None:
    header = JournalHeader(scenario=Scenario(policies=("afs-p",), placement="any", cluster=cluster(node("n1"))))
    with JournalWriter(tmp_path / "journal.jsonl", header) as journal:
        journal.append(0.0, [JobArrived(job("a", workers=4, elastic=Elastic(min_tasks=1, max_tasks=4)))], [], [])
        journal.append(0.0, [Started(JobId("a"), 0.25, 0.0)], [], [])
        journal.append(42.0, [Resized(JobId("a"), 10.0, 1.0, 42.0)], [], [])
        journal.append(60.0, [JobEnded(JobId("a"), End.SUCCEEDED, 28.0)], [], [])

    workload = read_trace(tmp_path / "journal.jsonl")

    assert workload.submissions[0].job.work == pytest.approx(28.0)


def test_delays_of_orders_come_from_the_journal_and_work_ends_with_the_order_to_stop(tmp_path: Path) -> None:
    a = JobId("a")
    header = JournalHeader(scenario=Scenario(policies=("fifo",), placement="any", cluster=cluster(node("n1"))))
    with JournalWriter(tmp_path / "journal.jsonl", header) as journal:
        journal.append(0.0, [JobArrived(job("a"))], [Start(a, on("n1", 1))], [])
        journal.append(0.5, [Started(a, 1.0, 0.5)], [], [])
        journal.append(10.5, [], [Stop(a, Cause.PREEMPTED)], [])
        journal.append(12.5, [Stopped(a, 12.0)], [Start(a, on("n1", 1))], [])
        journal.append(12.75, [], [Stop(a, Cause.PREEMPTED)], [])  # before it is answered that it has started
        journal.append(13.0, [Started(a, 1.0, 13.0)], [], [])
        journal.append(13.5, [Stopped(a, 12.5)], [], [])
        journal.append(20.0, [], [Start(a, on("n1", 1))], [])
        journal.append(21.0, [Started(a, 1.0, 21.0)], [], [])
        journal.append(26.0, [JobEnded(a, End.SUCCEEDED, 17.5)], [], [])

    (found,) = read_trace(tmp_path / "journal.jsonl").submissions

    assert found.delays is not None
    assert found.delays.starts_s == (0.5, 0.5, 1.0)
    assert found.delays.stops_s == (2.0, 0.75)
    assert found.job.work == pytest.approx(10.0 + 0.0 + 5.0)
