"""Whether the job or the node is at fault, and which nodes are lemons."""

from __future__ import annotations

from rota.health.blame import LemonCounters, RunEnd, fault_odds, lemon_signs, lemons
from rota.health.causes import Blame


def failed(job: str, *nodes: str, blame: Blame = Blame.UNKNOWN) -> RunEnd:
    return RunEnd(job=job, nodes=nodes, failed=True, blame=blame)


def good(job: str, *nodes: str) -> RunEnd:
    return RunEnd(job=job, nodes=nodes, failed=False)


def test_job_that_fails_on_several_nodes_is_at_fault() -> None:
    runs = [failed("a", "n1"), failed("a", "n2"), failed("a", "n3"), good("b", "n1"), good("c", "n2")]

    odds = fault_odds(runs)

    assert odds.jobs["a"] > 0.95
    assert max(odds.nodes.values()) < 0.05


def test_node_on_which_different_jobs_fail_is_at_fault() -> None:
    names = ["a", "b", "c", "d"]
    runs = [failed(name, "n1") for name in names] + [good(name, "n2") for name in names]

    odds = fault_odds(runs)

    assert odds.nodes["n1"] > 0.9
    assert odds.nodes["n2"] < 0.01
    assert max(odds.jobs.values()) < 0.2


def test_one_job_that_fails_again_and_again_on_one_node_proves_nothing_against_it() -> None:
    odds = fault_odds([failed("a", "n1") for _ in range(20)])

    assert odds.nodes["n1"] < 0.5
    assert odds.jobs["a"] > odds.nodes["n1"]


def test_cause_that_names_the_node_counts_more() -> None:
    plain = fault_odds([failed("a", "n1"), failed("b", "n1")])
    named = fault_odds([failed("a", "n1", blame=Blame.NODE), failed("b", "n1", blame=Blame.NODE)])

    assert named.nodes["n1"] > 0.9 > plain.nodes["n1"]


def test_no_runs_no_odds() -> None:
    assert fault_odds([]).nodes == {}


def test_lemons_stand_out_in_several_counters() -> None:
    counters = {f"n{index}": LemonCounters(runs=100, single_node_failures=1) for index in range(20)}
    counters["n3"] = LemonCounters(runs=30, single_node_failures=9, xids=6, out_of_service=4, tickets=1)
    counters["n4"] = LemonCounters(runs=100, xids=9)

    assert lemons(counters) == ("n3",)
    assert lemon_signs(counters)["n4"] == ("xids",)
    assert lemons({}) == ()
