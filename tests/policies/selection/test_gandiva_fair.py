"""Gandiva_fair: passes, trades and loads worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import World, job, on, start, stop
from rota.core.errors import RotaError
from rota.core.messages.reasons import ReasonCode
from rota.core.model.cluster import Cluster
from rota.core.model.job import DeviceType
from rota.drivers.simulator.study import Setting, simulate
from rota.mechanisms.selection.stride import Passes, StrideEntry, balanced, next_quantum
from rota.mechanisms.selection.trading import Trade, max_min, trade
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.model import SpeedModel
from rota.policies import find_policy
from rota.traces.workload import Submission, Workload


def ends(*submissions: Submission, setting: Setting, policy: str = "gandiva-fair") -> dict[str, float | None]:
    workload = Workload(submissions=submissions, source="test", format="rota", counts_steps=True)
    return {row.id: row.end_s for row in simulate(workload, policy, setting).history.jobs}


def of(name: str, user: str, work: float, gpus: int = 1, at_s: float = 0.0, model: str | None = None) -> Submission:
    return Submission(job=job(name, user=user, work=work, gpus=gpus, model=model), submit_s=at_s)


def test_users_share_one_device_by_tickets_and_not_by_jobs() -> None:
    # One device: a is u's only job with 1/2 of it in tickets, b and c are v's with 1/4 each. Quanta of 60 s, passes
    # grow by 60 / tickets: a by 120, b and c by 240. a 0-60, b 60-120, c 120-180, a 180-240 (pass 240, as b and c; the
    # first submitted goes first), a 240-300, b 300-360, c 360-420, a 420-480: it has had its 240 s. Then b and c in
    # turn.
    setting = Setting(cluster=Cluster.uniform(("gpu", 1, 1)))

    found = ends(of("a", "u", 240.0), of("b", "v", 240.0), of("c", "v", 240.0), setting=setting)

    assert found == {"a": 480.0, "b": 660.0, "c": 720.0}


def test_gang_pays_for_all_its_devices() -> None:
    # Two devices. u's gang of two has 1 device in tickets and pays 2 x 60 / 1 = 120 a quantum; v's two jobs have 1/2
    # each and pay 60 / 0.5 = 120. Gang 0-60, both singles 60-120, gang 120-180, singles 180-240.
    setting = Setting(cluster=Cluster.uniform(("gpu", 2, 2)))

    found = ends(of("gang", "u", 120.0, 2), of("a", "v", 120.0), of("b", "v", 120.0), setting=setting)

    assert found == {"gang": 180.0, "a": 240.0, "b": 240.0}


def test_tickets_need_not_be_equal() -> None:
    # u has 3 of 4 tickets of one device: passes grow by 60 / 0.75 = 80 for a and 60 / 0.25 = 240 for b. a 0-60 (80), b
    # 60-120 (240), a 120-180 (160), a 180-240 (240), a 240-300 (first submitted): 240 s are done at 300 s.
    setting = Setting(cluster=Cluster.uniform(("gpu", 1, 1)))

    found = ends(
        of("a", "u", 240.0),
        of("b", "v", 240.0),
        setting=setting,
        policy="gandiva-fair:entities=u/v,tickets=3/1",
    )

    assert found == {"a": 300.0, "b": 480.0}


def test_skipped_gang_keeps_its_pass_and_is_first_next_time() -> None:
    entries = [StrideEntry(0, 1, 7, 10.0, 1.0), StrideEntry(1, 2, 7, 11.0, 1.0), StrideEntry(2, 1, 7, 12.0, 1.0)]

    assert [entry.seq for entry in next_quantum(entries, {7: 2})] == [0, 2]
    entries[0].at, entries[2].at = 70.0, 72.0
    assert [entry.seq for entry in next_quantum(entries, {7: 2})] == [1]


def test_wide_jobs_compete_with_servers() -> None:
    # Two servers of two devices. The wide job of 3 has pass 5. Server 0's jobs have a mean pass of (0 + 8) / 2 = 4 and
    # go first, so that only server 1's two devices are left for it: it is skipped. With passes of 6 and 8 on server 0
    # the wide job goes first and takes both devices of server 0 and one of server 1, whose turn leaves one.
    wide = StrideEntry(9, 3, None, 5.0, 1.0)

    def chosen(first: float) -> list[int]:
        local = [
            StrideEntry(0, 1, 0, first, 1.0),
            StrideEntry(1, 1, 0, 8.0, 1.0),
            StrideEntry(2, 1, 1, 20.0, 1.0),
            StrideEntry(3, 1, 1, 30.0, 1.0),
        ]
        return [entry.seq for entry in next_quantum([wide, *local], {0: 2, 1: 2})]

    assert chosen(0.0) == [0, 1, 2, 3]
    assert chosen(6.0) == [9, 2]


def test_a_wide_job_takes_devices_of_the_servers_with_most_left() -> None:
    # Four devices of server 1 are enough for the wide job, so that server 0 has its two for its own job.
    entries = [StrideEntry(0, 2, 0, 1.0, 1.0), StrideEntry(9, 4, None, 0.0, 1.0)]

    assert [entry.seq for entry in next_quantum(entries, {0: 2, 1: 4})] == [9, 0]


def test_newcomers_start_where_the_least_served_are() -> None:
    passes = Passes({1: 100.0, 2: 60.0, 3: 80.0})

    passes.set_jobs([1, 3, 4])

    assert passes.by_job == {1: 100.0, 3: 80.0, 4: 80.0}


def test_trades_by_hand() -> None:
    # Three users have 2 fast and 2 slow devices each; a fast one is worth 1.2, 2 and 4 slow ones to them. a sells to c
    # at the next-highest offer, b's 2: c has 2 slow ones, enough for 1. Then a sells its other one to b, at its own
    # 1.2. Worth in slow devices: a 2 x 1.2 + 2 = 4.4 before and 5.2 after; b 6 and 3 x 2 + 0.8 = 6.8; c 10 and 12.
    fast, slow = dict.fromkeys("abc", 2.0), dict.fromkeys("abc", 2.0)

    trades = trade(fast, slow, {"a": 1.2, "b": 2.0, "c": 4.0}, dict.fromkeys("abc", 9.0))

    assert trades == [Trade("a", "c", 1.0, 2.0), Trade("a", "b", 1.0, 1.2)]
    assert fast == pytest.approx({"a": 0.0, "b": 3.0, "c": 3.0})
    assert slow == pytest.approx({"a": 5.2, "b": 0.8, "c": 0.0})


def test_nobody_sells_for_devices_that_it_has_no_jobs_for() -> None:
    # At a price of 2 every fast device that a sells leaves it with one device more; it has jobs for half a one more.
    fast, slow = {"a": 2.0, "b": 0.0}, {"a": 0.0, "b": 4.0}

    trades = trade(fast, slow, {"a": 2.0, "b": 3.0}, {"a": 0.5, "b": 0.0})

    assert trades == [Trade("a", "b", 0.5, 2.0)]
    assert (fast, slow) == ({"a": 1.5, "b": 0.5}, {"a": 1.0, "b": 3.0})


def test_fair_parts_are_by_weight_and_within_demand() -> None:
    # Of 12 devices a asks for 1, less than its 12 x 1/4 = 3. The 11 others go to b and c by 1 to 2.
    parts = max_min(12.0, {"a": 1.0, "b": 1.0, "c": 2.0}, {"a": 1.0, "b": 20.0, "c": 20.0})

    assert parts == pytest.approx({"a": 1.0, "b": 11 / 3, "c": 22 / 3})


@given(st.lists(st.tuples(st.floats(0.5, 8), st.floats(0, 4), st.floats(0, 4)), min_size=1, max_size=6))
def test_nobody_loses_by_trade(users: list[tuple[float, float, float]]) -> None:
    speedup = {str(at): values[0] for at, values in enumerate(users)}
    fast = {str(at): values[1] for at, values in enumerate(users)}
    slow = {str(at): values[2] for at, values in enumerate(users)}
    before = {user: fast[user] * speedup[user] + slow[user] for user in speedup}
    sums = sum(fast.values()), sum(slow.values())

    trade(fast, slow, speedup, dict.fromkeys(speedup, 3.0))

    assert (sum(fast.values()), sum(slow.values())) == pytest.approx(sums)
    for user in speedup:
        assert min(fast[user], slow[user]) >= -1e-9
        assert fast[user] * speedup[user] + slow[user] >= before[user] - 1e-6


def test_user_that_gains_most_gets_the_fast_device() -> None:
    # One fast and one slow device for two users of two jobs each: each is entitled to half of both. u's model runs 4
    # times as fast on the fast one, v's 1.25 times, which is the price: u's half of the slow device buys 0.4 of the
    # fast one. u then has 0.9 of the fast device and v all of the slow one, and their jobs take turns there: 2 x 2000
    # steps at 4 a second, and 2 x 500 at 1 a second, take 1000 s. Without trade, one of u's jobs runs on the slow
    # device.
    fast, slow = DeviceType("fast"), DeviceType("slow")
    speeds = {(fast, "m", 1): 4.0, (slow, "m", 1): 1.0, (fast, "n", 1): 1.25, (slow, "n", 1): 1.0}
    setting = Setting(
        cluster=Cluster.uniform(("fast", 1, 1), ("slow", 1, 1)),
        speed=SpeedModel(profiles=Profiles(steps_per_s=speeds, source="test")),
    )
    jobs = [of(name, "v", 500.0, model="n") for name in ("b1", "b2")]
    jobs += [of(name, "u", 2000.0, model="m") for name in ("a1", "a2")]

    traded = ends(*jobs, setting=setting)
    kept = ends(*jobs, setting=setting, policy="gandiva-fair:trade=false")

    # One quantum more, in which v has only one job left and wants no more slow devices for its part of the fast one.
    assert max(end_s or 0.0 for end_s in traded.values()) == 1060.0
    assert max(end_s or 0.0 for end_s in kept.values()) > 1200.0


def test_servers_are_kept_at_equal_load() -> None:
    # Server 0 has 4 devices and server 1 has 2. Jobs 0 to 2 of one ticket go where the load per device is least, the
    # larger server first: 0 on server 0 (1/4), 1 on server 1 (1/2), 2 on server 0 (2/4). Job 3 with 4 tickets is at
    # home on server 1: loads (2/4, 5/2); job 1 may move and does: 3/4 is less than 5/2.
    one = {0: 1.0, 1: 1.0, 2: 1.0}
    sizes = dict.fromkeys(range(4), 1)

    assert balanced(one, sizes, {}, {0: 4, 1: 2}, []) == {0: 0, 1: 1, 2: 0}
    moved = balanced({**one, 3: 4.0}, sizes, {0: 0, 1: 1, 2: 0, 3: 1}, {0: 4, 1: 2}, [1])
    assert moved == {0: 0, 1: 0, 2: 0, 3: 1}


def test_newcomer_waits_for_the_end_of_the_quantum() -> None:
    # It starts with the pass of the least served, 70 s / 1 ticket of a; at 120 s a's has grown by 50 / 0.5.
    world = World(gpus=1, policy="gandiva-fair")
    assert world.submit("a", user="u") == [start("a", on("n1", 1))]
    world.started("a")
    assert world.engine.wakeup_s == math.inf
    world.pass_s(70.0)

    assert world.submit("b", user="v") == []
    assert world.code("b") is ReasonCode.DEVICES_BUSY
    assert world.engine.wakeup_s == 120.0
    assert world.timer(120.0) == [stop("a")]
    assert world.stopped("a") == [start("b", on("n1", 1))]
    assert world.code("a") is ReasonCode.DEVICES_BUSY


def test_job_that_takes_its_time_to_stop_keeps_its_pass() -> None:
    # a and b have half a device each in tickets. a runs from 0 to 60 s: its pass is 60 / 0.5 = 120. It is told to stop,
    # and still saves its state when c comes at 61 s. The device is b's since 60 s, so that b's pass is 1 / 0.5 = 2:
    # there c starts.
    world = World(gpus=1, policy="gandiva-fair")
    world.settle(world.submit("a", user="u"))
    world.submit("b", user="v")
    assert world.timer(60.0) == [stop("a")]
    world.pass_s(1.0)

    world.submit("c", user="w")

    assert dict(world.engine.memory["rule"]["passes"]) == {0: 120.0, 1: 2.0, 2: 2.0}
    assert world.stopped("a") == [start("b", on("n1", 1))]
    assert dict(world.engine.memory["rule"]["passes"]) == {0: 120.0, 1: 2.0, 2: 2.0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("quantum_s=0", "quantum_s is 0"),
        ("entities=a,tickets=1/2", "give one each"),
        ("entities=a/a,tickets=1/2", "entities name 'a' twice; give its tickets once"),
        ("entities=a,tickets=0", "tickets must be finite numbers above 0"),
    ],
)
def test_impossible_parameters_are_refused(options: str, message: str) -> None:
    with pytest.raises(RotaError, match=message):
        find_policy("gandiva-fair")[0].read(options)
