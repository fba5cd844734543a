"""Histories and runs for tests of the report; what a case is not about has a default."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from builders import job, on
from rota.core.messages.decisions import Start
from rota.core.messages.events import End, JobEnded, Started
from rota.core.model.cluster import Cluster
from rota.core.model.job import JobId, NodeId
from rota.core.state.history import History, JobRow
from rota.drivers.simulator.study import Result, Setting, simulate
from rota.perf.speed.model import Costs
from rota.report.html import RunReport
from rota.report.metrics import measure, measure_tenants
from rota.report.timeline import Timeline
from rota.scenario import Scenario
from rota.traces.workload import Submission, Workload


def row(
    job_id: str,
    submit_s: float,
    start_s: float | None,
    end_s: float | None,
    *,
    gpus: float = 1,
    **fields: Any,
) -> JobRow:
    """A job that ran from its start to its end without a break."""
    run_s = 0.0 if start_s is None or end_s is None else end_s - start_s
    defaults: dict[str, Any] = {
        "id": job_id,
        "name": job_id,
        "tenant": "default",
        "user": "",
        "state": "succeeded",
        "tasks": 1,
        "priority": 0,
        "run_s": run_s,
        "wait_s": 0.0 if end_s is None else end_s - submit_s - run_s,
        "gpu_s": gpus * run_s,
        "ideal_s": run_s,
        "preemptions": 0,
        "restarts": 0,
        "overhead_s": 0.0,
        "fragmented_s": 0.0,
        "lost_s": 0.0,
        "deadline_s": None,
    }
    return JobRow(gpus=gpus, submit_s=submit_s, start_s=start_s, end_s=end_s, **defaults | fields)


def history(*rows: JobRow, devices: int = 4, free: float = 0.0, fragmented: float = 0.0) -> History:
    """Rows on a cluster of so many devices."""
    return History(jobs=rows, devices=devices, free_device_s=free, fragmented_device_s=fragmented)


def sub(job_id: str, submit_s: float, work: float, *, title: str = "", **fields: Any) -> Submission:
    """A job of so many seconds."""
    return Submission(job=replace(job(job_id, work=work, **fields), name=title), submit_s=submit_s)


def simulated(
    submissions: Sequence[Submission],
    policy: str = "fifo",
    *,
    gpus: int = 4,
    per_node: int = 4,
    restart_s: float = 0.0,
    faults: Sequence[tuple[float, str, bool]] = (),
) -> tuple[Result, Timeline]:
    """A small simulation and what a timeline saw of it."""
    cluster = Cluster.uniform(("gpu", gpus, per_node))
    setting = Setting(
        cluster=cluster,
        costs=Costs(restart_s=restart_s),
        fault_list=tuple((at_s, NodeId(name), up) for at_s, name, up in faults),
    )
    timeline = Timeline(cluster)
    workload = Workload(submissions=tuple(submissions), source="here", format="own")
    return simulate(workload, policy, setting, journal=timeline), timeline


def run_report(
    submissions: Sequence[Submission], policy: str = "fifo", *, name: str | None = None, **fields: Any
) -> RunReport:
    """A simulated run, ready to be reported."""
    result, timeline = simulated(submissions, policy, **fields)
    return RunReport(
        name=name or policy,
        scenario=Scenario(policies=(policy,), placement=result.placement),
        metrics=measure(result.history),
        tenants=measure_tenants(result.history),
        history=result.history,
        timeline=timeline,
    )


def large_run(name: str, jobs: int, runs_per_job: int) -> RunReport:
    """Jobs on 55 nodes, each stopped and started again several times."""
    timeline = Timeline(Cluster.uniform(("gpu", 440, 8)))
    rows = []
    for i in range(jobs):
        submit_s, job_id = 100.0 * i, JobId(f"job-{i}")
        placement = on(f"n{i % 55 + 1}", 1 + i % 8)
        for k in range(runs_per_job):
            start_s = submit_s + 50.0 * k
            timeline.append(start_s, [], [Start(job_id, placement)], [])
            timeline.append(start_s, [Started(job_id, 1.0, start_s)], [], [])
            timeline.append(start_s + 40.0, [JobEnded(job_id, End.SUCCEEDED, 1.0)], [], [])
        rows.append(row(job_id, submit_s, submit_s, start_s + 40.0, gpus=1 + i % 8, tenant=f"t{i % 20}", name="n" * 20))
    past = history(*rows, devices=440)
    return RunReport(
        name=name,
        scenario=Scenario(policies=("fifo",), placement="any"),
        metrics=measure(past),
        tenants=measure_tenants(past),
        history=past,
        timeline=timeline,
    )
