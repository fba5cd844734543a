"""Themis: an auction, its payments and leases, worked out by hand."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import World, cluster, node, on, start, stop
from rota.core.errors import RotaError
from rota.core.messages.reasons import ReasonCode
from rota.core.state.inventory import Inventory
from rota.drivers.simulator.study import Setting, scheduler
from rota.mechanisms.selection.auction import Award, auction
from rota.policies import find_policy
from rota.policies.published.selection.themis import slowdown


def test_winners_keep_what_their_presence_leaves_to_others() -> None:
    # Four devices; bids of 2, 2 and 4 devices would make their bidders 2, 3 and 4 times as well off. The first two
    # together are worth 2 x 3 = 6, more than the last alone with 4. Without the first bidder the last would win: the
    # others have 3 with it and 4 without, so it keeps 3/4. Without the second: 2 with it, 4 without, so 2/4.
    awards = auction(4, [2, 2, 4], [math.log(2), math.log(3), math.log(4)])

    assert [award.bidder for award in awards] == [0, 1]
    assert [award.keeps for award in awards] == pytest.approx([0.75, 0.5])


def test_winner_that_is_in_nobodys_way_keeps_all() -> None:
    assert auction(8, [2, 4], [1.0, 2.0]) == [Award(0, 1.0), Award(1, 1.0)]


@given(st.integers(0, 8), st.lists(st.tuples(st.integers(1, 5), st.integers(0, 20)), max_size=6))
def test_auction_finds_the_largest_product(devices: int, bids: list[tuple[int, int]]) -> None:
    def best(of: list[tuple[int, int]]) -> int:
        sets = (chosen for many in range(len(of) + 1) for chosen in itertools.combinations(of, many))
        return max(sum(gain for _, gain in chosen) for chosen in sets if sum(size for size, _ in chosen) <= devices)

    awards = auction(devices, [size for size, _ in bids], [float(gain) for _, gain in bids])

    won = [bids[award.bidder] for award in awards]
    assert sum(size for size, _ in won) <= devices
    assert sum(gain for _, gain in won) == best(bids)
    for award in awards:
        others = bids[: award.bidder] + bids[award.bidder + 1 :]
        harm = best(bids) - bids[award.bidder][1] - best(others)
        assert award.keeps == pytest.approx(math.exp(harm))


def test_worst_off_job_takes_over_when_the_lease_is_over() -> None:
    # One device. From 0 to 100 s job a is alone, then there are two jobs: at 600 s the mean is (100 + 2 x 500) / 600 =
    # 1.83 for a and 2 for b. rho of a = (600 + 400) / (1.83 x 1000) = 0.55, of b = (500 + 100) / (2 x 100) = 3. One
    # of two jobs bids, the worst off: b, against nobody, so it keeps all that it wins.
    world = World(gpus=1, policy="themis")
    assert world.submit("a", work=1000.0) == [start("a", on("n1", 1))]
    world.started("a")
    world.pass_s(100.0)
    assert world.submit("b", work=100.0) == []
    assert world.code("b") is ReasonCode.DEVICES_BUSY
    assert world.engine.wakeup_s == 600.0

    assert world.timer(600.0) == [stop("a")]
    assert world.stopped("a") == [start("b", on("n1", 1))]
    world.started("b")

    world.pass_s(100.0)
    assert world.ended("b") == [start("a", on("n1", 1))]


def test_lease_goes_on_when_its_holder_is_still_the_worst_off() -> None:
    # At 600 s rho of a = (600 + 100) / (1.83 x 700) = 0.55 and of b, which came at 590 s, = (10 + 5000) / (2 x 5000) =
    # 0.50: a bids, wins and keeps its device. Its next lease ends at 1200 s.
    world = World(gpus=1, policy="themis")
    world.submit("a", work=700.0)
    world.started("a")
    world.pass_s(100.0)
    world.submit("c", work=1.0, gpus=2)
    world.cancel("c")
    world.pass_s(490.0)
    world.submit("b", work=5000.0)

    assert world.timer(600.0) == []
    assert world.engine.wakeup_s == 1200.0
    assert world.live("a").holds


def test_nobody_is_asked_while_nobody_waits() -> None:
    world = World(gpus=2, policy="themis")
    world.submit("a", work=1000.0)

    assert world.engine.wakeup_s == math.inf


def test_what_a_winner_may_not_keep_goes_to_the_others_by_lot() -> None:
    # Six jobs want two devices at 600 s, when the lease of "first" is over. With f = 0.8 the worst ceil(0.2 x 6) = 2 of
    # them bid: rho of "old" is (600 + 100) / (n x 100), of "first" (600 + 400) / (n x 1000); the others have only just
    # come. "old" would gain ln(1300 / 700) = 0.62 with one device, "first" ln(1600 / 1000) = 0.47 with two: "old" wins
    # and keeps it with a chance of exp(-0.47) = 0.625. The first number of seed 0 is 0.844: it does not. Both devices
    # go to the others, and "first" has to leave.
    world = World(gpus=2, policy="themis")
    world.submit("first", gpus=2, work=1000.0)
    world.started("first")
    world.submit("old", work=100.0)
    world.pass_s(599.0)
    for name in "abcd":
        world.submit(name, work=5000.0)
    assert world.engine.wakeup_s == 600.0

    assert world.timer(600.0) == [stop("first")]
    started = world.stopped("first")

    assert len(started) == 2
    assert {decision.job_id for decision in started} < set("abcd")


def test_spread_makes_a_bid_worth_less() -> None:
    account = Inventory(cluster(node("n1", 4, rack="r1"), node("n2", 4, rack="r1"), node("n3", 4, rack="r2")))
    pool = account.pools[0]

    assert [slowdown(account, pool, gpus) for gpus in (4, 5, 8, 9, 12)] == [1.0, 1.1, 1.1, 1.3, 1.3]


def test_tenancy_beside_it_is_refused() -> None:
    with pytest.raises(RotaError, match="'themis' divides the whole cluster and can't run with tenancy 'quota'"):
        scheduler("themis", Setting(cluster=cluster(node("n1")), tenancy="quota"))


@pytest.mark.parametrize(("options", "message"), [("filter=1", "filter is 1"), ("lease_s=0", "lease_s is 0")])
def test_impossible_parameters_are_refused(options: str, message: str) -> None:
    with pytest.raises(RotaError, match=message):
        find_policy("themis")[0].read(options)
