"""Reservations: their rules as calculations, and what follows from them in a loop whose time the test sets."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import cluster, job, node
from live.test_control import Notes
from loops import running
from rota.core.engine.driver import ExitDetail
from rota.core.engine.engine import Engine
from rota.core.errors import RotaError
from rota.core.messages.events import End, JobArrived, JobEnded, JobRequeued, JobUpdated, Stopped
from rota.core.model.job import Checkpoint, DeviceType, Job, JobId, JobState, TenantId
from rota.core.model.labels import RESERVED, RESERVED_LATER, TOLERATES_SUSPECTS, Taint
from rota.core.state.state import State
from rota.drivers.local.launch_order import LaunchOrder
from rota.live.intake.audit_entry import Asker
from rota.live.loop.control import Control
from rota.live.loop.entry import LoopEntry, StepRecorder
from rota.live.loop.record import Record
from rota.live.reservations import enforcement
from rota.live.reservations import keeper as keeper_module
from rota.live.reservations.keeper import ReservationKeeper
from rota.live.reservations.reservation import (
    GRACE_S,
    START_S,
    NodeReservation,
    decode_reservation,
    tolerant,
    tolerations_for,
    whole_nodes,
)
from rota.placement import style
from rota.policies import find_policy
from rota.store.database import open_database
from rota.store.records import Records
from rota.tenancy import allocator

NOW_S = 1e6
HOUR_S = 3600.0
ADMIN = Asker(name="root")


def reservation(**fields: Any) -> NodeReservation:
    usual: dict[str, Any] = {"name": "course", "id": "course.1", "nodes": ("n1",), "tenant": "nlp"}
    return NodeReservation(**{**usual, "from_s": NOW_S + HOUR_S, "until_s": NOW_S + 2 * HOUR_S, **fields})


# -- calculations ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "owner", "before", "inside"),
    [
        (job("1", tenant=TenantId("nlp")), "ada", True, True),
        (job("1"), "ada", False, False),
        (job("1", time_limit_s=HOUR_S - START_S - GRACE_S), "ada", True, False),
        (job("1", time_limit_s=HOUR_S - START_S - GRACE_S + 1), "ada", False, False),
        (job("1", time_limit_s=HOUR_S - START_S, checkpoint=Checkpoint(interval_s=float("inf"), grace_s=0)), "", 1, 0),
        (job("1", preemptible=True), "ada", True, False),
        (job("1", priority=-1), "ada", True, False),
        (job("1", checkpoint=Checkpoint(interval_s=60)), "ada", True, False),
        (job("1", checkpoint=Checkpoint(interval_s=float("inf"))), "ada", False, False),
    ],
)
def test_which_jobs_may_use_a_reserved_node(asked: Job, owner: str, before: bool, inside: bool) -> None:
    for now_s, expected, key in ((NOW_S, before, RESERVED_LATER), (NOW_S + HOUR_S, inside, RESERVED)):
        found, _ = tolerations_for(asked, owner, 0.0, [reservation()], now_s)
        assert reservation().taint(now_s) == Taint(key, "course.1")
        assert any((each.key, each.value) == (key, "course.1") for each in found) == expected


def test_users_are_known_by_the_name_under_which_they_submit() -> None:
    mine = reservation(tenant=None, users=("ada",))

    assert mine.has("any", "ada")
    assert not mine.has("ada", "ben")
    assert not reservation().has("vision", "nlp")


def test_time_that_a_job_has_run_counts_towards_its_limit() -> None:
    asked = job("1", time_limit_s=2 * HOUR_S)

    assert tolerations_for(asked, "", 0.0, [reservation()], NOW_S)[0] == ()
    found, until_s = tolerations_for(asked, "", 1.5 * HOUR_S, [reservation()], NOW_S)
    assert len(found) == 1
    assert until_s == NOW_S + HOUR_S / 2 - START_S - GRACE_S


def test_tolerations_replace_those_of_former_reservations_and_leave_others() -> None:
    plain = job("1")
    asked = replace(plain, roles=tuple(replace(role, tolerates=(TOLERATES_SUSPECTS,)) for role in plain.roles))
    found, _ = tolerations_for(replace(asked, preemptible=True), "", 0.0, [reservation()], NOW_S)

    with_them = tolerant(asked, found)

    assert with_them.roles[0].tolerates == (TOLERATES_SUSPECTS, *found)
    assert tolerant(with_them, found) is with_them
    assert tolerant(with_them, ()) == asked


def test_reservation_survives_its_encoding() -> None:
    assert decode_reservation(reservation(users=("ada",), tenant=None).encode()) == reservation(
        users=("ada",), tenant=None
    )


def test_sentence_names_nodes_group_time_and_name() -> None:
    at_eight = reservation(from_s=8 * HOUR_S, until_s=10 * HOUR_S)

    assert at_eight.words(9 * HOUR_S, ["n1"]) == "n1 is reserved for nlp until 10:00 UTC (course)"
    assert at_eight.words(7 * HOUR_S, ["n1", "n2"]) == "n1, n2 are reserved for nlp from 08:00 until 10:00 UTC (course)"
    assert "until 1970-01-01 10:00 UTC" in at_eight.words(-HOUR_S, ["n1"])
    of_users = reservation(tenant=None, users=("ada", "ben"))
    assert "reserved for 2 users" in of_users.words(NOW_S, ["n1"])
    assert of_users.words(NOW_S, [str(number) for number in range(7)]).startswith("0, 1, 2, 3, 4 and 2 more are")


@given(st.lists(st.integers(1, 9), min_size=1, max_size=7), st.integers(1, 40))
def test_whole_nodes_are_found_exactly_where_they_exist(sizes: list[int], gpus: int) -> None:
    nodes = [node(f"n{number}", size) for number, size in enumerate(sizes)]
    exist = any(
        sum(chosen) == gpus for count in range(len(sizes) + 1) for chosen in itertools.combinations(sizes, count)
    )

    if exist:
        chosen = whole_nodes(nodes, gpus, None)
        assert sum(each.devices for each in nodes if each.id in chosen) == gpus
        assert len(set(chosen)) == len(chosen)
    else:
        with pytest.raises(RotaError, match="name nodes"):
            whole_nodes(nodes, gpus, None)


def test_whole_nodes_are_of_one_type_and_earlier_ones_come_first() -> None:
    nodes = [node("a", 4), node("b", 4), replace(node("c", 4), device_type=DeviceType("H100"))]

    assert whole_nodes(nodes, 4, None) == ("a",)
    assert whole_nodes(nodes, 4, DeviceType("H100")) == ("c",)
    with pytest.raises(RotaError, match=r"exactly so many together; .* ask for 8 GPUs, or name nodes"):
        whole_nodes(nodes, 12, None)
    with pytest.raises(RotaError, match=r"ask for 4 GPUs or 8 GPUs, or name nodes"):
        whole_nodes(nodes, 6, None)
    with pytest.raises(RotaError, match="name nodes, or another time"):
        whole_nodes([], 6, None)


# -- in a loop -------------------------------------------------------------------------------------


class Hall:
    """A loop on two nodes of one device, a keeper, and the time of day."""

    def __init__(self, control: Control, records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
        self.control, self.now_s = control, NOW_S
        self.started: list[tuple[Job, str]] = []
        """What began since this was last emptied, and on which node."""
        monkeypatch.setattr(keeper_module, "_now_s", lambda: self.now_s)
        self.keeper = ReservationKeeper(control, records)
        self.keeper.take_up()

    async def at(self, now_s: float) -> None:
        """Let the time come and the keeper look, as it does when something is due."""
        self.now_s = now_s
        self.keeper._look()
        await self.settle()

    async def settle(self) -> None:
        """Return when all that was told is done: an entry is carried out only when the next one is taken."""
        for _ in range(3):
            await self.control.apply(LoopEntry([]))

    async def arrive(self, asked: Job, owner: str = "ada") -> None:
        entry = LoopEntry([JobArrived(asked)])
        entry.records = {asked.id: Record('{"run": "true"}', owner)}
        await self.control.apply(entry)
        await self.settle()

    async def end(self, name: str) -> None:
        self.control.answered(JobEnded(JobId(name), End.SUCCEEDED, 1.0), ExitDetail(exit_code=0))
        await self.settle()

    def state(self, name: str) -> JobState:
        return self.control.state.jobs[JobId(name)].state

    def on(self, name: str) -> str:
        placement = self.control.state.jobs[JobId(name)].placement
        assert placement is not None
        return str(self.control.state.inventory.nodes[placement[0].node].node.id)


class Starts(Notes):
    """A driver that notes where jobs begin."""

    def __init__(self, hall: Hall) -> None:
        super().__init__()
        self.control, self._hall = hall.control, hall

    def start(self, order: LaunchOrder) -> None:
        self._hall.started.append((order.job, self._hall.on(order.job.id)))
        super().start(order)


def with_hall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, course: Callable[[Hall], Awaitable[None]], policy: str = "priority"
) -> None:
    async def main() -> None:
        records = Records(open_database(tmp_path / "rota.db"))
        nodes = cluster(node("n1", 1), node("n2", 1))
        alloc = allocator("none", style("any"), nodes)
        recorder = StepRecorder()
        built = find_policy(policy)[0].build("", alloc)
        control = Control(Engine(State(nodes), built, alloc, journal=recorder), recorder, records, {}, 0)
        hall = Hall(control, records, monkeypatch)
        driver = Starts(hall)
        with contextlib.closing(records):
            async with running(control, driver):
                await course(hall)

    asyncio.run(main())


def test_a_job_with_a_time_limit_loses_its_chance_when_it_could_no_longer_end_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def course(hall: Hall) -> None:
        await hall.keeper.add(reservation(id="", nodes=("n1", "n2")), ADMIN)
        for name in ("1", "2"):
            await hall.arrive(job(name, preemptible=True, priority=3))
        await hall.arrive(job("limited", time_limit_s=HOUR_S / 2))
        await hall.arrive(job("late", time_limit_s=HOUR_S / 2))
        latest_s = NOW_S + HOUR_S / 2 - START_S - GRACE_S
        assert hall.keeper._due_s <= NOW_S + enforcement.MOST_S
        await hall.at(latest_s - 1)
        assert hall.keeper._due_s == latest_s
        await hall.end("1")
        assert hall.state("limited") is JobState.RUNNING

        await hall.at(latest_s + 1)
        await hall.end("2")

        assert hall.state("late") is JobState.WAITING
        reason = hall.control.explain(JobId("late"))
        assert reason is not None
        assert "reserved for nlp from" in reason.sentence()
        await hall.at(NOW_S + 2 * HOUR_S)
        assert hall.state("late") is JobState.RUNNING

    with_hall(tmp_path, monkeypatch, course)


def test_at_the_beginning_only_those_of_others_that_may_be_stopped_give_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def course(hall: Hall) -> None:
        await hall.arrive(job("keeps"))
        await hall.arrive(job("yields", preemptible=True))
        await hall.keeper.add(reservation(id="", nodes=("n1", "n2"), users=("ben",), tenant=None), ADMIN)
        await hall.at(NOW_S + HOUR_S)
        live = hall.control.state.jobs[JobId("yields")]
        assert live.is_leaving
        assert not hall.control.state.jobs[JobId("keeps")].is_leaving

        hall.control.answered(Stopped(JobId("yields"), 0.0), ExitDetail())
        await hall.settle()
        await hall.arrive(job("theirs"), "ben")

        assert (hall.state("yields"), hall.state("keeps")) == (JobState.WAITING, JobState.RUNNING)
        assert hall.on("theirs") == "n2"
        await hall.end("keeps")
        assert hall.state("yields") is JobState.WAITING
        await hall.keeper.cancel("course", ADMIN)
        await hall.settle()
        assert hall.on("yields") == "n1"

    with_hall(tmp_path, monkeypatch, course)


def test_a_job_that_waits_again_has_the_tolerations_of_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that began long before knows nothing of the reservation; its own devices are closed to it by then."""

    async def course(hall: Hall) -> None:
        await hall.arrive(job("mine", tenant=TenantId("nlp")))
        await hall.arrive(job("2"))
        assert hall.on("mine") == "n1"
        await hall.keeper.add(reservation(id="", from_s=NOW_S), ADMIN)
        await hall.control.apply(LoopEntry([JobRequeued(JobId("mine"))]))

        hall.control.answered(Stopped(JobId("mine"), 0.0), ExitDetail())
        await hall.settle()

        assert hall.state("mine") is JobState.RUNNING
        assert hall.on("mine") == "n1"

    with_hall(tmp_path, monkeypatch, course)


def test_an_update_by_a_user_and_one_by_a_reservation_in_one_step_both_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def course(hall: Hall) -> None:
        for name in ("1", "2", "waits"):
            await hall.arrive(job(name))
        asked = hall.control.state.jobs[JobId("waits")].job
        change = asyncio.ensure_future(
            hall.control.apply(LoopEntry([JobUpdated(asked.id, replace(asked, priority=7, preemptible=True))]))
        )
        await asyncio.sleep(0)
        await hall.keeper.add(reservation(id=""), ADMIN)
        await change
        await hall.settle()

        found = hall.control.state.jobs[JobId("waits")].job

        assert (found.priority, found.preemptible) == (7, True)
        assert [each.key for each in found.roles[0].tolerates] == [RESERVED_LATER]
        assert hall.keeper._asked == {}

    with_hall(tmp_path, monkeypatch, course)


def test_reservations_agree_with_the_rules_over_random_times_and_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No job is ever started on a node that the rules close to it, whatever comes, goes and changes."""
    rng = random.Random(25)

    async def course(hall: Hall) -> None:
        begun = 0
        for number in range(60):
            now_s = hall.now_s + rng.choice([0.0, 60.0, 600.0])
            await hall.at(now_s)
            begun += refuse_closed(hall)
            if rng.random() < 0.3:
                begins_s = now_s + rng.choice([0.0, 300.0, 1200.0])
                wanted = reservation(
                    id="",
                    name=f"r{number}",
                    nodes=(rng.choice(["n1", "n2"]),),
                    from_s=begins_s,
                    until_s=begins_s + rng.choice([300.0, 900.0]),
                )
                with contextlib.suppress(RotaError):
                    await hall.keeper.add(wanted, ADMIN)
            asked = job(
                str(number),
                tenant=TenantId(rng.choice(["nlp", "vision"])),
                preemptible=rng.random() < 0.4,
                time_limit_s=rng.choice([None, 100.0, 600.0]),
            )
            await hall.arrive(asked)
            begun += refuse_closed(hall)
            for job_id, live in list(hall.control.state.jobs.items()):
                if live.is_leaving:
                    hall.control.answered(Stopped(job_id, 0.0), ExitDetail())
                elif live.state is JobState.RUNNING and rng.random() < 0.5:
                    await hall.end(job_id)
            await hall.settle()
            begun += refuse_closed(hall)
        assert begun > 20

    def refuse_closed(hall: Hall) -> int:
        """Refuse starts on nodes that are closed to the job; return how many there were."""
        found = len(hall.started)
        for asked, name in hall.started:
            for each in hall.keeper.all():
                if name in each.nodes and not each.has(str(asked.tenant), "ada"):
                    latest_s = each.latest_start_s(asked, 0.0)
                    is_in_time = asked.preemptible or (latest_s is not None and hall.now_s <= latest_s)
                    assert is_in_time, (asked, each, hall.now_s)
                    assert not each.is_open(hall.now_s), (asked, each, hall.now_s)
        hall.started.clear()
        return found

    with_hall(tmp_path, monkeypatch, course)
