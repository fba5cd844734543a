"""ElasticFlow by hand: least shares in order of deadline. Speeds are 1, 1.414 and 2 on 1, 2 and 4 devices."""

from __future__ import annotations

import math

import pytest

from elastic_jobs import elastic, ends, history, rigid
from rota.core.model.cluster import Cluster
from rota.core.model.job import Level
from rota.core.state.job_record import LiveJob
from rota.drivers.simulator.study import Setting, simulate
from rota.perf.speed.model import SpeedModel
from rota.policies.published.elastic.elasticflow import ElasticFlow
from rota.report.metrics import measure
from rota.traces.generators import generate

SPREAD = SpeedModel(spread={Level.RACK: 0.5, Level.DOMAIN: 0.5, Level.CLUSTER: 0.5})
"""Half as fast on several nodes."""
ROOT2 = math.sqrt(2)


def test_the_least_share_that_keeps_each_deadline() -> None:
    """a needs 100/60 = 1.67 work a second: four devices until 50. b has 70 s left then, and needs only one; it
    gets all that is left, too, and is done at 50 + 60/2."""
    found = ends("elasticflow", elastic("a", 100.0, deadline_s=60.0), elastic("b", 60.0, deadline_s=120.0))

    assert found == {"a": 50.0, "b": 80.0}


def test_no_promise_is_made_that_would_break_another() -> None:
    """c could have [50, 100] on four devices, but then b would have 20 s at speed 2 for its 60: c is not promised.

    From 50 on: b has its least share of one, c one as it has nothing yet, then one more each (two are left, the
    gains are alike). b ends at 50 + 60/1.414; c has done 60 by then and does the other 40 on four.
    """
    b_s = 50 + 60 / ROOT2
    jobs = (
        elastic("a", 100.0, deadline_s=60.0),
        elastic("b", 60.0, deadline_s=120.0),
        elastic("c", 100.0, deadline_s=100.0),
    )

    assert ends("elasticflow", *jobs) == {"a": 50.0, "b": round(b_s, 2), "c": round(b_s + 20, 2)}
    assert measure(history("elasticflow", *jobs)).deadlines_met == 2


def test_one_device_serves_two_deadlines_one_after_the_other() -> None:
    """40 + 50 <= 100: both are kept on one device, the later submission with the earlier deadline first."""
    found = ends("elasticflow", rigid("b", 50.0, deadline_s=100.0), rigid("a", 40.0, deadline_s=60.0), gpus=1)

    assert found == {"a": 40.0, "b": 90.0}


def test_a_promised_job_takes_its_devices_back_from_one_without_deadline() -> None:
    """`late` comes at 10 and is due at 60: it needs the only device at once."""
    found = ends("elasticflow", rigid("free", 100.0), rigid("late", 50.0, at_s=10.0, deadline_s=60.0), gpus=1)

    assert found == {"late": 60.0, "free": 150.0}


@pytest.mark.parametrize(("restart_s", "met"), [(0.0, 1), (20.0, 0)])
def test_restarts_are_planned_for(restart_s: float, met: int) -> None:
    """With 20 s for a restart, 90 s of work can't be promised in 100: the shorter of the undue jobs is not stopped."""
    jobs = (rigid("free", 100.0), rigid("due", 90.0, at_s=10.0, deadline_s=105.0))

    assert measure(history("elasticflow", *jobs, gpus=1, restart_s=restart_s)).deadlines_met == met


def test_smaller_jobs_move_where_a_promised_one_has_no_node_to_itself() -> None:
    """Two nodes of four. At 10, `short` ones end and two devices lie free on each node: `due`, which needs 50 s on
    one node and 100 s on two, has 50 s. One of the others moves to the other node, and both go on as they did."""
    others = [
        rigid(name, work, gpus=2) for name, work in (("short1", 10.0), ("l1", 90.0), ("l2", 80.0), ("short2", 10.0))
    ]
    due = rigid("due", 50.0, at_s=10.0, gpus=4, deadline_s=60.0)

    found = ends("elasticflow", *others, due, gpus=8, per_node=4, speed=SPREAD)

    assert found == {"short1": 10.0, "short2": 10.0, "l1": 90.0, "l2": 80.0, "due": 60.0}


def test_who_grows_has_a_node_to_itself() -> None:
    """Two nodes of four. `due` can't be in time on less than four devices: 100 of work by 60 at speed 2. Who grows to
    four while two lie free on each node makes another move, and is done at 10 + 50."""
    others = [
        rigid(name, work, gpus=2) for name, work in (("short1", 10.0), ("l1", 90.0), ("l2", 80.0), ("short2", 10.0))
    ]
    speed = SpeedModel(scaling=0.5, spread=SPREAD.spread)
    due = elastic("due", 100.0, at_s=10.0, deadline_s=60.0)

    found = ends("elasticflow", *others, due, gpus=8, per_node=4, speed=speed)

    assert found["due"] == 60.0


@pytest.mark.slow
def test_guarantees_hold_on_several_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many elastic jobs on nodes of eight, no job with a guaranteed deadline is late."""
    promised: dict[str, bool] = {}

    def note(self: ElasticFlow, live: LiveJob) -> None:
        promised[str(live.job.id)] = self._promised.get(live.seq, False)

    monkeypatch.setattr(ElasticFlow, "forget", note)
    workload = generate("gavel-like", jobs=100, seed=0, gpus=32, load=2.0, elastic=1.0, deadlines=1.0)
    setting = Setting(cluster=Cluster.uniform(("gpu", 32, 8)))

    rows = simulate(workload, "elasticflow", setting).history.jobs

    late = [row.id for row in rows if promised[str(row.id)] and (row.end_s or 0.0) > (row.deadline_s or 0.0) + 1e-6]
    assert sum(promised.values()) > 60
    assert late == []
