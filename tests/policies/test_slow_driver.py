"""A driver that takes its time: answers come late, in any order, or tell of something else than was ordered."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import World, at_once, in_rounds, in_rounds_mostly_slow
from rota.core.messages.decisions import Decision, Move, Renew, Resize, Resume, Start, Stop, Suspend
from rota.core.messages.events import (
    End,
    Event,
    Interrupted,
    JobArrived,
    JobCancelled,
    JobEnded,
    JobHeld,
    JobReleased,
    Lapsed,
    Moved,
    NodeBack,
    NodeDrained,
    NodeLost,
    NodeUndrained,
    Resized,
    Resumed,
    SpeedChanged,
    Started,
    StartFailed,
    Stopped,
    Suspended,
    TimerFired,
)
from rota.core.messages.reasons import ReasonCode
from rota.core.model.job import JobId, JobState
from rota.core.model.placement import Placement
from strategies import PLACEMENTS, clusters, fits, fits_one_type, jobs

POLICIES = [*at_once(), *in_rounds_mostly_slow(), "fifo:backfill=true", "tiresias:order=gittins,thresholds=20/60"]
ON_DEVICES = (JobState.STARTING, JobState.RUNNING)


Wish = JobHeld | JobReleased | JobCancelled
Fate = NodeBack | NodeDrained | NodeUndrained
WISHES: list[type[Wish]] = [JobHeld, JobReleased, JobCancelled]
FATES: list[type[Fate]] = [NodeBack, NodeDrained, NodeUndrained]


class SlowDriver:
    """Carries out what a `World` orders, one answer at a time, as the test draws them."""

    def __init__(self, world: World, data: st.DataObject) -> None:
        self.world = world
        self.draw = data.draw
        self.orders: dict[JobId, Decision] = {}
        """What was ordered and not answered: a stop takes the place of the start before it."""
        self.where: dict[JobId, Placement] = {}
        self.submitted = 0
        self.may_run = fits

    def tell(self, *events: Event) -> None:
        """Something happens; remember what is ordered because of it."""
        self.obey(self.world.step(*events))

    def obey(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, Start):
                assert decision.job_id not in self.where, "it is there already"
                self.where[decision.job_id] = decision.placement
            self.orders[decision.job_id] = decision

    def answer(self, name: JobId, *, smoothly: bool = False) -> None:
        """One order is carried out, or something comes between."""
        live = self.world.live(name)
        work = live.work_done(self.world.now_s)
        way = 0 if smoothly else self.draw(st.integers(0, 5))
        match self.orders.pop(name):
            case Start() if way == 5:
                del self.where[name]
                self.tell(StartFailed(name, "no such image"))
            case Start():
                self.tell(Started(name, 1.0, self.world.now_s))
            case Resize(_, placement):
                self.where[name] = placement
                self.tell(Resized(name, work, 1.0, self.world.now_s))
            case Move(_, placement):
                self.where[name] = placement
                self.tell(Moved(name, work, 1.0, self.world.now_s))
            case Suspend():
                self.tell(Suspended(name, work))
            case Resume(_, placement):
                self.where[name] = placement
                self.tell(Resumed(name, 1.0, self.world.now_s))
            case Renew(_, placement, _):
                self.where[name] = placement
                self.tell(SpeedChanged(name, work, 1.0))
            case Stop() if way == 4:
                del self.where[name]
                self.tell(Interrupted(name, 0.0))
            case Stop() if way == 5 and live.state is JobState.RUNNING:
                del self.where[name]
                self.tell(JobEnded(name, End.SUCCEEDED, live.job.work or 0.0))
            case Stop() if way == 3 and live.state is JobState.STARTING:
                self.orders[name] = Stop(name, live.stopping or pytest.fail("not being stopped"))
                self.tell(Started(name, 1.0, self.world.now_s))
            case Stop():
                del self.where[name]
                self.tell(Stopped(name, work))

    def end(self, name: JobId, end: End = End.SUCCEEDED) -> None:
        """A job that runs comes to its end."""
        self.where.pop(name)
        self.orders.pop(name, None)
        self.tell(JobEnded(name, end, self.world.live(name).job.work or 0.0))

    def lose(self, index: int) -> None:
        """A node fails, and with it the jobs that are on it."""
        hit = [name for name, held in self.where.items() if any(slot.node == index for slot in held)]
        for name in hit:
            del self.where[name]
            self.orders.pop(name, None)
        self.tell(
            NodeLost(self.world.cluster.nodes[index].id),
            *(Interrupted(name, min(self.world.live(name).work, 1.0)) for name in hit),
        )

    def act(self, placement: str) -> None:
        """Anything that can happen."""
        world = self.world
        nodes = [node.id for node in world.cluster.nodes]
        known = list(world.state.jobs)
        some_job = st.sampled_from(known) if known else st.nothing()
        match self.draw(st.integers(0, 13)):
            case 0 | 1 | 2:
                asked = self.draw(jobs(self.submitted, self.submitted))
                if self.may_run(asked, world.cluster, placement):
                    self.submitted += 1
                    self.tell(JobArrived(asked, held=self.draw(st.integers(0, 5)) == 0))
            case 3 | 4 | 5 | 6 if self.orders:
                self.answer(self.draw(st.sampled_from(list(self.orders))))
            case 7 | 8 if running := self.running():
                self.end(self.draw(st.sampled_from(running)), self.draw(st.sampled_from(list(End))))
            case 9 if known:
                wish: type[Wish] = self.draw(st.sampled_from(WISHES))
                self.tell(wish(self.draw(some_job)))
            case 10:
                self.lose(self.draw(st.integers(0, len(nodes) - 1)))
            case 11:
                fate: type[Fate] = self.draw(st.sampled_from(FATES))
                self.tell(fate(self.draw(st.sampled_from(nodes))))
            case _:
                self.pass_time(self.draw(st.integers(0, 20)))

    def pass_time(self, seconds: float) -> None:
        """Time passes, but for no longer than until the engine wants to be woken or a job would be done."""
        world = self.world
        then_s = min(world.now_s + seconds, world.engine.wakeup_s)
        for name in self.running():
            live = world.live(name)
            then_s = min(then_s, world.now_s + max((live.job.work or 0.0) - live.work_done(world.now_s), 0.0))
            then_s = min(then_s, self.lapses_s(name))
        world.now_s = max(then_s, world.now_s)
        self.tell(*(self.lapses() or [TimerFired()]))

    def lapses_s(self, name: JobId) -> float:
        """When a running job's lease is over."""
        live = self.world.live(name)
        if live.lease is None or name in self.orders:
            return float("inf")
        left = live.lease.work - live.work_done(self.world.now_s)
        return min(live.lease.until_s, self.world.now_s + max(left, 0.0))

    def lapses(self) -> list[Event]:
        """The leases that are over now."""
        now_s = self.world.now_s
        over = [name for name in self.running() if self.lapses_s(name) <= now_s]
        return [Lapsed(name, self.world.live(name).work_done(now_s)) for name in over]

    def running(self) -> list[JobId]:
        return [name for name in self.where if self.world.live(name).state is JobState.RUNNING]

    def finish(self) -> None:
        """Mend everything, answer everything, and see that every job comes to its end."""
        for node in self.world.cluster.nodes:
            self.tell(NodeBack(node.id), NodeUndrained(node.id))
        for name in list(self.world.state.jobs):
            self.tell(JobReleased(name))
        for _ in range(60 * (self.submitted + 1)):
            if self.orders:
                self.answer(next(iter(self.orders)), smoothly=True)
            elif running := self.running():
                self.end(running[0])
            elif self.world.engine.wakeup_s < float("inf"):
                self.pass_time(float("inf"))
            else:
                break
        assert self.where == {}
        assert self.orders == {}
        unfinished = {
            name: self.world.why(name) for name, live in self.world.state.jobs.items() if not live.state.is_final
        }
        assert unfinished == {}


def agree(driver: SlowDriver) -> None:
    """The engine and its driver know of the same jobs on devices, and every waiting job has its reason."""
    world = driver.world
    assert set(driver.where) == {name for name, live in world.state.jobs.items() if live.state in ON_DEVICES}
    for name, live in world.state.jobs.items():
        if live.state in (JobState.WAITING, JobState.HELD):
            assert world.code(name) not in (None, ReasonCode.NOT_CONSIDERED)


def live_slowly(policy: str, data: st.DataObject) -> None:
    placement = data.draw(st.sampled_from(PLACEMENTS))
    world = World(of=data.draw(clusters()), policy=policy, placement=placement)
    driver = SlowDriver(world, data)
    if policy in in_rounds():
        driver.may_run = fits_one_type
    for _ in range(data.draw(st.integers(5, 40))):
        driver.act(placement)
        agree(driver)
    driver.finish()


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@given(data=st.data())
@settings(max_examples=4)
def test_every_job_ends_whatever_the_driver_does(policy: str, data: st.DataObject) -> None:
    live_slowly(policy, data)


@pytest.mark.long
@pytest.mark.parametrize("policy", POLICIES)
@given(data=st.data())
@settings(max_examples=100)
def test_every_job_ends_whatever_the_driver_does_at_length(policy: str, data: st.DataObject) -> None:
    live_slowly(policy, data)
