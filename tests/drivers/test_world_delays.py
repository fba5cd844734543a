"""The simulated world where it is known how long each start and stop of a job really took."""

from __future__ import annotations

from builders import job, on, start, stop
from rota.core.messages.events import SpeedChanged, Started, Stopped
from rota.core.model.cluster import Cluster
from rota.core.model.job import JobId
from rota.drivers.simulator.world import World
from rota.perf.speed.model import Costs, SpeedModel
from rota.traces.workload import OrderDelays, Submission

TWO = Cluster.uniform(("gpu", 4, 2))


def delayed(*, load_s: float = 1.0, checkpoint_s: float = 2.0) -> World:
    """A world with one job of 10 s whose first start took 0.5 s, the second 3 s, and the stop between them 4 s."""
    made = World(TWO, SpeedModel(), Costs(load_s=load_s, checkpoint_s=checkpoint_s))
    delays = OrderDelays(starts_s=(0.5, 3.0), stops_s=(4.0,))
    made.expect(Submission(job=job("a", work=10.0), submit_s=0.0, delays=delays))
    return made


def test_starts_and_stops_with_known_delays_are_answered_after_them() -> None:
    w, a = delayed(), JobId("a")

    assert w.carry_out([start("a", on("n1", 1))], 0.0) == []
    assert (w.due_s, w.pop_due(0.5)) == (0.5, [Started(a, 1.0, 0.5)])
    assert w.carry_out([stop("a")], 4.5) == [SpeedChanged(a, 4.0, 0.0)]
    assert w.pop_due(8.5) == [Stopped(a, 4.0)]
    assert w.carry_out([start("a", on("n1", 1))], 10.0) == []
    assert w.pop_due(13.0) == [Started(a, 1.0, 13.0)]
    assert w.due_s == 19.0


def test_start_with_a_known_delay_can_be_called_back() -> None:
    w, a = delayed(), JobId("a")

    w.carry_out([start("a", on("n1", 1))], 0.0)
    assert w.carry_out([stop("a")], 0.25) == []
    assert (w.due_s, w.pop_due(4.25)) == (4.25, [Stopped(a, 0.0)])
    w.carry_out([start("a", on("n1", 1))], 5.0)
    assert w.pop_due(8.0) == [Started(a, 1.0, 8.0)]


def test_known_delays_do_not_count_where_orders_take_no_time() -> None:
    w = delayed(load_s=0.0, checkpoint_s=0.0)

    assert w.carry_out([start("a", on("n1", 1))], 0.0) == [Started(JobId("a"), 1.0, 0.0)]
    assert w.carry_out([stop("a")], 4.0) == [Stopped(JobId("a"), 4.0)]
