"""Tenants, shares, cells and nodes change while jobs run: nothing that runs is stopped, nothing is lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from builders import World, node
from rota.core.errors import RotaError
from rota.core.messages.events import NodeAdded, NodeRemoved, PromisesChanged
from rota.core.messages.reasons import ReasonCode
from rota.core.model.cells import CellPlan, CellTypeName, Quota, TenantCells
from rota.core.model.cluster import Cluster
from rota.core.model.job import NodeId, TenantId
from rota.core.model.tenants import ANY_TYPE, Share, TenantPlan
from rota.files import read_cluster
from rota.tenancy.cells.allocator import CellAllocator
from rota.tenancy.cells.check import check_cells

HALL = Path(__file__).parents[1] / "conformance" / "own" / "config" / "hall.yaml"
RACK, BOX = CellTypeName("RACK"), CellTypeName("BOX")


def hall(policy: str = "fifo:backfill=true") -> World:
    return World(of=read_cluster(str(HALL)), tenancy="cells", policy=policy)


def plan_of(w: World, **tenants: TenantCells) -> CellPlan:
    """The hall's cells, promised to these tenants."""
    assert w.cluster.cells is not None
    return replace(w.cluster.cells, tenants={TenantId(name): cells for name, cells in tenants.items()})


def boxes(number: int) -> TenantCells:
    return TenantCells(quotas=(Quota(chain=RACK, type=BOX, cells=number, path=(RACK, BOX)),))


def is_guaranteed(w: World, name: str) -> bool:
    allocator = w.engine.state.ledger
    assert isinstance(allocator, CellAllocator)
    check_cells(allocator.accounts)
    return next(claim for live, claim in allocator._claims.items() if live.job.id == name).is_guaranteed


def shares(**gpus: int) -> TenantPlan:
    return TenantPlan(shares={TenantId(name): Share(guaranteed={ANY_TYPE: count}) for name, count in gpus.items()})


# -- cells ---------------------------------------------------------------------------------------


def test_what_no_longer_fits_runs_on_without_a_guarantee() -> None:
    w = hall()
    w.settle(w.submit("g1", gpus=4, tenant="green", priority=1))
    w.settle(w.submit("g2", gpus=4, tenant="green"))

    decided = w.step(PromisesChanged(plan_of(w, green=boxes(1), blue=boxes(3))))

    assert decided == []
    assert w.states() == {"g1": "running", "g2": "running"}
    assert is_guaranteed(w, "g1")
    assert not is_guaranteed(w, "g2")


def test_a_new_owner_takes_what_it_was_promised() -> None:
    w = hall()
    w.settle(w.submit("g1", gpus=4, workers=2, tenant="green"))
    w.settle(w.step(PromisesChanged(plan_of(w, red=boxes(4)))))
    assert w.states() == {"g1": "running"}

    for name in ("r1", "r2", "r3", "r4"):
        w.settle(w.submit(name, gpus=4, tenant="red"))

    assert w.states() == {"g1": "waiting", **dict.fromkeys(("r1", "r2", "r3", "r4"), "running")}
    w.settle(w.ended("r1", "r2"))
    assert w.states()["g1"] == "running", "its tenant is gone, and it may use what is idle"


def test_a_waiting_job_whose_tenant_shrank_runs_where_there_is_room() -> None:
    w = hall()
    w.settle(w.submit("g1", gpus=4, workers=2, tenant="green"))
    w.settle(w.submit("g2", gpus=4, workers=2, tenant="green"))
    assert w.code("g2") is ReasonCode.QUOTA_USED

    w.settle(w.step(PromisesChanged(plan_of(w, green=boxes(1)))))

    assert w.states() == {"g1": "running", "g2": "running"}
    assert w.live("g2").demoted


def test_promises_given_back_restore_the_guarantee() -> None:
    w = hall()
    before = w.cluster.cells
    w.settle(w.submit("g", gpus=4, workers=2, tenant="green"))
    w.settle(w.step(PromisesChanged(plan_of(w, blue=boxes(4)))))
    assert not is_guaranteed(w, "g")
    assert w.live("g").demoted

    w.settle(w.step(PromisesChanged(before)))

    assert is_guaranteed(w, "g")
    assert not w.live("g").demoted


def test_a_larger_share_lets_a_waiting_job_start() -> None:
    w = hall()
    w.settle(w.submit("b1", gpus=4, tenant="blue"))
    w.settle(w.submit("b2", gpus=4, tenant="blue"))
    assert w.code("b2") is ReasonCode.QUOTA_USED

    w.settle(w.step(PromisesChanged(plan_of(w, blue=boxes(2), green=boxes(2)))))

    assert w.states()["b2"] == "running"
    assert is_guaranteed(w, "b2")


def test_promises_that_cannot_be_kept_change_nothing() -> None:
    w = hall()
    w.settle(w.submit("g", gpus=4, workers=2, tenant="green"))

    with pytest.raises(RotaError, match=r"tenants own 5 cells of 'BOX'"):
        w.step(PromisesChanged(plan_of(w, green=boxes(5))))

    w.settle(w.submit("b", gpus=4, tenant="blue"))
    assert w.states() == {"g": "running", "b": "running"}
    assert is_guaranteed(w, "g")


def test_a_machine_joins_with_its_cells_and_leaves_again() -> None:
    w = hall()
    assert w.cluster.cells is not None
    lone = next(entry for entry in w.cluster.cells.physical if entry.type == BOX)
    wider = replace(w.cluster.cells, physical=(*w.cluster.cells.physical, replace(lone, address="new", pinned=None)))
    wider = replace(
        wider, tenants={**wider.tenants, TenantId("red"): TenantCells(quotas=(Quota(chain=BOX, type=BOX, cells=1),))}
    )
    grown = replace(w.cluster.nodes[-1], id=NodeId("new"))

    w.settle(w.step(NodeAdded(grown), PromisesChanged(wider)))
    w.settle(w.submit("r", gpus=4, tenant="red"))
    assert w.states() == {"r": "running"}
    assert is_guaranteed(w, "r")

    w.settle(w.step(NodeRemoved(NodeId("new")), PromisesChanged(w.cluster.cells)))
    assert w.states() == {"r": "running"}, "it runs on where it is"
    w.settle(w.submit("b", gpus=4, tenant="blue", labels=(("pinned_cell", "attic"),)))
    w.settle(w.ended("r"))
    w.settle(w.submit("o", gpus=4, tenant="blue", priority=-1, workers=5))
    assert w.states()["o"] == "waiting", "the machine that left is not offered again"


# -- shares --------------------------------------------------------------------------------------


def quota(plan: TenantPlan, *, nodes: int = 2) -> World:
    plain = Cluster.uniform(("gpu", 4 * nodes, 4))
    return World(of=Cluster(nodes=plain.nodes, tenants=plan), tenancy="quota", policy="fifo:backfill=true")


def test_shares_change_and_what_is_lent_is_taken_back() -> None:
    w = quota(shares(a=8, b=0))
    w.settle(w.submit("a1", gpus=4, tenant="a"))
    w.settle(w.submit("a2", gpus=4, tenant="a"))
    w.settle(w.submit("b1", gpus=4, tenant="b"))
    assert w.states()["b1"] == "waiting"

    w.settle(w.step(PromisesChanged(None, shares(a=4, b=4))))

    assert w.states() == {"a1": "running", "a2": "waiting", "b1": "running"}


def test_what_tenants_have_had_outlives_new_shares() -> None:
    w = quota(replace(shares(a=4, b=4), half_life_s=100.0))
    w.settle(w.submit("a1", gpus=4, tenant="a"))
    w.pass_s(100.0)
    w.settle(w.step(PromisesChanged(None, replace(shares(a=4, b=2, c=2), half_life_s=100.0))))

    w.pass_s(100.0).settle(w.ended("a1"))
    past = w.state.past["quota"]

    assert past["a"] == pytest.approx([4 * 100.0 / 0.6931471805599453 * 3 / 4, 200.0])


def test_a_limit_that_came_later_holds_no_one_up_for_ever() -> None:
    w = quota(shares(a=4, b=4))
    w.settle(w.submit("b1", gpus=4, workers=2, tenant="b"))
    w.settle(w.submit("a1", gpus=4, tenant="a"))
    tight = TenantPlan(shares={TenantId("a"): Share(limit={ANY_TYPE: 2}), TenantId("b"): Share()})

    w.settle(w.step(PromisesChanged(None, tight)))
    w.settle(w.ended("b1") if w.states()["b1"] == "running" else [])

    assert w.states()["a1"] == "running"


# -- nodes ---------------------------------------------------------------------------------------


def test_a_removed_node_takes_nothing_new_and_comes_back() -> None:
    w = World(gpus=4, nodes=2)
    w.settle(w.submit("x", gpus=4))

    w.settle(w.step(NodeRemoved(NodeId("n1"))))
    w.settle(w.submit("y", gpus=4))
    w.settle(w.submit("z", gpus=4))
    w.settle(w.ended("x"))
    assert w.states() == {"x": "succeeded", "y": "running", "z": "waiting"}

    w.settle(w.step(NodeAdded(node("n1", 4))))
    assert w.states()["z"] == "running"


def test_a_removed_node_may_come_back_as_another_when_it_is_empty() -> None:
    w = World(gpus=4, nodes=2)
    w.settle(w.submit("x", gpus=4))
    w.settle(w.step(NodeRemoved(NodeId("n1"))))
    with pytest.raises(RotaError, match="jobs still run there"):
        w.step(NodeAdded(node("n1", 8)))
    w.settle(w.step(NodeAdded(node("n1", 4, rack="other"))))
    w.settle(w.step(NodeRemoved(NodeId("n1"))))
    w.settle(w.ended("x"))

    w.settle(w.step(NodeAdded(node("n1", 8))))
    w.settle(w.submit("wide", gpus=8))

    assert w.states()["wide"] == "running"


def test_a_job_that_only_the_removed_node_could_hold_says_so() -> None:
    w = World(of=Cluster(nodes=(node("n1", 8), node("n2", 4))))
    w.settle(w.step(NodeRemoved(NodeId("n1"))))
    w.settle(w.submit("wide", gpus=8))

    assert w.code("wide") is ReasonCode.NEVER_FITS
    with pytest.raises(RotaError, match="was removed already"):
        w.step(NodeRemoved(NodeId("n1")))
