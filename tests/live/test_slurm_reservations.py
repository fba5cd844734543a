"""Slurm's reservations where Rota decides: which jobs they keep off, as limits and reservations change."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

from drivers.slurm.slurm_values import job_value, jobs, node_value
from live.test_control import Notes
from loops import running
from rota.core.engine.engine import Engine
from rota.core.messages.events import JobArrived, JobUpdated
from rota.core.model.job import Job, JobId
from rota.core.state.state import State
from rota.drivers.slurm.printed.records import read_jobs, read_nodes
from rota.drivers.slurm.printed.reservations import SlurmReservation
from rota.drivers.slurm.translate import cluster_of, job_of
from rota.live.loop.control import Control
from rota.live.loop.entry import LoopEntry, StepRecorder
from rota.live.loop.record import Record, dump
from rota.live.slurm.slurm_loop import spec_of
from rota.live.slurm.slurm_reservations import SlurmReservations, kept_reservations
from rota.placement import style
from rota.policies import find_policy
from rota.store import clock
from rota.store.database import open_database
from rota.store.records import Records
from rota.tenancy import allocator

Course = Callable[[Control, SlurmReservations], Awaitable[None]]
CLUSTER = cluster_of(read_nodes(json.dumps({"nodes": [node_value()]})).found)
LIMIT_MIN = 10


def maintenance(after_s: float) -> list[SlurmReservation]:
    """The node is reserved for an hour, that many seconds from now."""
    now_s = clock.shown_s(clock.now_s())
    return [SlurmReservation(name="maint", nodes=("n1",), start_s=now_s + after_s, end_s=now_s + after_s + 3600.0)]


def asked(number: int, limit_min: int = LIMIT_MIN) -> Job:
    (job,) = read_jobs(jobs(job_value(number, time_limit=limit_min))).found
    return job_of(job)


async def arrive(control: Control, job: Job) -> None:
    await control.apply(LoopEntry([JobArrived(job)], records={job.id: Record(dump(spec_of(job)), job.user)}))
    await control.at_rest()


def with_reservations(tmp_path: Path, course: Course) -> None:
    """Run a course on a loop on one node of four devices."""

    async def main() -> None:
        records = Records(open_database(tmp_path / "rota.db"))
        alloc, recorder = allocator("none", style("any"), CLUSTER), StepRecorder()
        declared, options = find_policy("easy")
        engine = Engine(State(CLUSTER), declared.build(options, alloc), alloc, journal=recorder)
        control = Control(engine, recorder, records, {}, 0)
        keeper = SlurmReservations(control, records)
        keeper.take_up()
        driver = Notes()
        with contextlib.closing(records):
            async with running(control, driver):
                await course(control, keeper)

    asyncio.run(main())


def test_limit_of_a_job_decides_whether_it_starts_before_a_reservation(tmp_path: Path) -> None:
    async def course(control: Control, keeper: SlurmReservations) -> None:
        await keeper.follow(kept_reservations(maintenance(LIMIT_MIN * 60.0 + 300.0)))
        for number, limit_min in ((1, LIMIT_MIN), (2, 3 * LIMIT_MIN)):
            await arrive(control, asked(number, limit_min))
        assert {str(name): live.holds for name, live in control.state.jobs.items()} == {"1": True, "2": False}
        reason = control.explain(JobId("2"))
        assert reason is not None
        assert "n1 is reserved" in reason.sentence()

        await control.apply(LoopEntry([JobUpdated(JobId("2"), asked(2))]))  # its user lowers its limit
        await control.at_rest()
        assert control.state.jobs[JobId("2")].holds

    with_reservations(tmp_path, course)


def test_job_starts_once_the_reservation_is_gone(tmp_path: Path) -> None:
    async def course(control: Control, keeper: SlurmReservations) -> None:
        await keeper.follow(kept_reservations(maintenance(60.0)))
        await arrive(control, asked(1))
        assert not control.state.jobs[JobId("1")].holds

        await keeper.follow(kept_reservations(maintenance(2 * 3600.0)))  # it was moved
        await control.at_rest()
        assert control.state.jobs[JobId("1")].holds
        await keeper.follow([])
        assert [account.reserved for account in control.state.inventory.nodes] == [()]

    with_reservations(tmp_path, course)
