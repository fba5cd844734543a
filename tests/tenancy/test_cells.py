"""Cells as the engine's allocator: private clusters, lending, reclaiming, bad hardware, reasons."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builders import World, at_once, job
from rota.core.messages.events import Interrupted, NodeBack, NodeDrained, NodeLost, NodeReserved
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import WHOLE, DeviceType, JobId, NodeId, Role, TenantId
from rota.core.model.labels import RESERVED, Requirement, Taint, Toleration
from rota.files import read_cluster
from rota.tenancy.cells.allocator import CellAllocator
from rota.tenancy.cells.check import check_cells

HALL = Path(__file__).parents[1] / "conformance" / "own" / "config" / "hall.yaml"


def world(policy: str = "fifo:backfill=true") -> World:
    return World(of=read_cluster(str(HALL)), tenancy="cells", policy=policy)


def holds_together(w: World) -> None:
    allocator = w.engine.state.ledger
    assert isinstance(allocator, CellAllocator)
    check_cells(allocator.accounts)


def submit(w: World, name: str, tenant: str, **fields: Any) -> None:
    w.settle(w.submit(name, tenant=tenant, **fields))
    holds_together(w)


def nodes_of(w: World, name: str) -> set[str]:
    placement = w.live(name).placement
    assert placement is not None
    return {str(w.cluster.nodes[slot.node].id) for slot in placement}


def test_a_tenants_gang_starts_within_its_own_rack() -> None:
    w = world()
    submit(w, "b", "blue", gpus=1)
    submit(w, "g", "green", gpus=4, workers=2)

    assert nodes_of(w, "g") in ({"r1a", "r1b"}, {"r2a", "r2b"})
    assert not nodes_of(w, "b") & nodes_of(w, "g")


def test_lent_cells_come_back_to_their_owner() -> None:
    w = world()
    submit(w, "o1", "blue", gpus=4, workers=2, priority=-1)
    submit(w, "o2", "blue", gpus=4, workers=2, priority=-1)
    submit(w, "g", "green", gpus=4, workers=2)

    assert w.states()["g"] == "running"
    assert sorted(w.states().values()) == ["running", "running", "waiting"]


def test_priority_counts_inside_a_tenant_only() -> None:
    w = world()
    submit(w, "low", "blue", gpus=4, priority=1)
    submit(w, "g", "green", gpus=4, workers=2, priority=0)
    submit(w, "high", "blue", gpus=4, priority=7)

    assert w.states() == {"low": "waiting", "g": "running", "high": "running"}
    reason = w.why("low")
    assert reason is not None
    assert reason.sentence() == (
        "needs 4 devices; tenant blue may use 4 devices, of which 0 devices are available at this priority; "
        "starts when jobs of the tenant with the same or a higher priority end"
    )


def test_a_lazy_job_runs_on_without_its_guarantee() -> None:
    w = world()
    submit(w, "low", "blue", gpus=4, priority=1, labels=(("lazy_preemption", "true"),))
    submit(w, "high", "blue", gpus=4, priority=7)

    assert w.states() == {"low": "running", "high": "running"}


def test_a_pinned_cell_is_asked_for_by_label() -> None:
    w = world()
    submit(w, "p", "blue", gpus=2, labels=(("pinned_cell", "attic"),))
    submit(w, "q", "green", gpus=2, labels=(("pinned_cell", "attic"),))

    assert nodes_of(w, "p") == {"lone"}
    assert w.code("q") is ReasonCode.QUOTA_TOO_SMALL


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"tenant": "blue", "gpus": 4, "workers": 2}, ReasonCode.QUOTA_TOO_SMALL),
        ({"tenant": "nobody", "gpus": 1}, ReasonCode.QUOTA_TOO_SMALL),
        ({"tenant": "green", "gpus": 8}, ReasonCode.CELLS_SCATTERED),
        ({"tenant": "green", "gpus": 0.5}, ReasonCode.NEVER_FITS),
        ({"tenant": "green", "gpus": 8, "priority": -1}, ReasonCode.NEVER_FITS),
        ({"tenant": "green", "gpus": 4, "workers": 6, "priority": -1}, ReasonCode.NEVER_FITS),
        (
            {"tenant": "green", "gpus": 4, "priority": -1, "device_types": (DeviceType("TPU"),)},
            ReasonCode.NO_SUCH_TYPE,
        ),
    ],
)
def test_reasons(fields: dict[str, Any], code: ReasonCode) -> None:
    w = world()
    w.settle(w.submit("j", **fields))

    assert w.code("j") is code
    reason = w.why("j")
    assert reason is not None
    assert reason.sentence()


TWO_TYPES = """
physicalCluster:
  cellTypes:
    A-BOX: {childCellType: A, childCellNumber: 4, isNodeLevel: true}
    B-BOX: {childCellType: B, childCellNumber: 2, isNodeLevel: true}
  physicalCells: [{cellType: A-BOX, cellAddress: a}, {cellType: B-BOX, cellAddress: b}]
virtualClusters:
  lab: {virtualCells: [{cellType: A-BOX, cellNumber: 1}, {cellType: B-BOX, cellNumber: 1}]}
"""


@pytest.fixture
def two_types(tmp_path: Path) -> World:
    path = tmp_path / "two.yaml"
    path.write_text(TWO_TYPES)
    return World(of=read_cluster(str(path)), tenancy="cells", policy="fifo:backfill=true")


def test_nobody_is_stopped_while_another_type_that_will_do_is_idle(two_types: World) -> None:
    submit(two_types, "low", "lab", gpus=2, device_types=(DeviceType("B"),), priority=1)
    submit(two_types, "high", "lab", gpus=2, priority=9)

    assert two_types.states() == {"low": "running", "high": "running"}


def test_numbers_of_a_reason_are_those_of_one_type(two_types: World) -> None:
    submit(two_types, "first", "lab", gpus=4)
    submit(two_types, "second", "lab", gpus=4)

    reason = two_types.why("second")
    assert reason is not None
    assert (reason.code, reason.owned_milli, reason.free_milli) == (ReasonCode.QUOTA_USED, 4000, 0)


def test_nodes_that_would_not_be_enough_are_not_the_reason() -> None:
    w = world()
    w.settle(w.step(NodeLost(NodeId("lone"))))
    submit(w, "b", "blue", gpus=1, priority=-1)
    submit(w, "o", "blue", gpus=4, workers=4, priority=-1)
    w.settle(w.step(NodeDrained(NodeId("r2b"))))

    assert w.code("o") is ReasonCode.DEVICES_BUSY


def test_bad_hardware_is_named_and_healed() -> None:
    w = world()
    for node in ("r1a", "r2a"):
        w.settle(w.step(NodeLost(NodeId(node))))
    submit(w, "g", "green", gpus=4, workers=2)
    assert w.code("g") is ReasonCode.BAD_HARDWARE

    w.settle(w.step(NodeBack(NodeId("r1a"))))

    assert nodes_of(w, "g") == {"r1a", "r1b"}
    holds_together(w)


def test_an_interrupted_job_goes_elsewhere_in_its_quota() -> None:
    w = world()
    submit(w, "b", "blue", gpus=4)
    (node,) = nodes_of(w, "b")

    w.settle(w.step(NodeLost(NodeId(node)), Interrupted(JobId("b"), 0.0)))

    assert nodes_of(w, "b") != {node}
    w.step(NodeDrained(NodeId("r1a")))
    holds_together(w)


def test_a_stuck_tenant_does_not_hold_up_the_others() -> None:
    w = world("fifo")
    submit(w, "stuck", "blue", gpus=4, workers=2)
    submit(w, "behind", "blue", gpus=1)
    submit(w, "other", "green", gpus=1)

    assert w.states() == {"stuck": "waiting", "behind": "waiting", "other": "running"}


def test_types_are_looked_for_in_order() -> None:
    w = world()
    submit(w, "typed", "green", gpus=1, device_types=(DeviceType("H100"), DeviceType("T4")))

    assert w.states()["typed"] == "running"


@pytest.mark.parametrize("policy", at_once(tenancy=True))
def test_every_policy_runs_inside_tenants(policy: str) -> None:
    w = world(policy)
    for at in range(12):
        tenant = ("green", "blue")[at % 2]
        w.pass_s(1.0)
        submit(w, f"j{at}", tenant, gpus=(1, 2, 4)[at % 3], priority=(-1, 0, 3)[at % 3], work=1000.0)

    while running := [name for name, state in w.states().items() if state == "running"]:
        w.pass_s(1.0)
        w.settle(w.ended(running[0]))
        holds_together(w)

    assert set(w.states().values()) == {"succeeded"}


def test_a_reservation_counts_only_what_comes_back_to_its_tenant() -> None:
    w = world("easy")
    submit(w, "soon", "blue", gpus=4, work=10.0)
    submit(w, "late", "green", gpus=4, work=100.0)
    submit(w, "head", "green", gpus=4, workers=2, work=10.0)
    submit(w, "short", "green", gpus=2, work=90.0)
    submit(w, "long", "green", gpus=2, work=110.0)

    assert w.states()["short"] == "running"
    assert w.why("long") == Reason(code=ReasonCode.WOULD_DELAY, job=JobId("head"), until_s=100.0)


def test_each_tenant_has_a_reservation_of_its_own() -> None:
    w = world("easy")
    submit(w, "b", "blue", gpus=3, work=50.0)
    submit(w, "blocked", "blue", gpus=4, work=10.0)
    submit(w, "g", "green", gpus=2, work=1000.0)
    submit(w, "wide", "green", gpus=4, workers=2, work=10.0)

    assert w.states() == {"b": "running", "blocked": "waiting", "g": "running", "wide": "waiting"}
    submit(w, "passes", "blue", gpus=1, work=40.0)
    submit(w, "delays", "green", gpus=4, work=2000.0)
    assert w.states()["passes"] == "running"
    assert w.why("delays") == Reason(code=ReasonCode.WOULD_DELAY, job=JobId("wide"), until_s=1000.0)


def test_a_reservation_in_a_pinned_cell_waits_for_that_cell() -> None:
    w = world("easy")
    attic = (("pinned_cell", "attic"),)
    submit(w, "p", "blue", gpus=3, work=100.0, labels=attic)
    submit(w, "b", "blue", gpus=4, work=10.0)
    submit(w, "head", "blue", gpus=4, work=10.0, labels=attic)
    submit(w, "long", "blue", gpus=1, work=110.0, labels=attic)

    assert w.why("long") == Reason(code=ReasonCode.WOULD_DELAY, job=JobId("head"), until_s=100.0)


def test_without_a_guarantee_every_end_counts() -> None:
    w = world("easy")
    submit(w, "g", "green", gpus=4, workers=2, work=30.0)
    submit(w, "b", "blue", gpus=4, work=20.0)
    submit(w, "head", "blue", gpus=4, workers=4, priority=-1, work=10.0)
    submit(w, "long", "blue", gpus=4, priority=-1, work=100.0)

    assert w.states()["head"] == "waiting"
    assert w.why("long") == Reason(code=ReasonCode.WOULD_DELAY, job=JobId("head"), until_s=30.0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tenant": "green", "gpus": 0.5}, "gpus is 0.5; tenancy 'cells' gives whole devices, ask for one"),
        ({"tenant": "green", "exclusive": True}, "exclusive is true; tenancy 'cells' can't keep others off a node"),
        (
            {
                "tenant": "green",
                "roles": (
                    Role(name="a", device_types=(DeviceType("T4"),)),
                    Role(name="b", device_types=(DeviceType("V100"),)),
                ),
            },
            "gpu is T4 for one role and V100 for another",
        ),
        ({"tenant": "gren"}, "tenant is 'gren', which owns no cells; did you mean 'green'?"),
        (
            {"tenant": "green", "gpus": 8},
            "a task needs 8 devices, the cells of tenant 'green' have at most 4 on one node",
        ),
        ({"tenant": "green", "gpus": 4, "workers": 3}, "the job needs 12 devices, tenant 'green' owns 8 of one type"),
        ({"tenant": "blue", "gpus": 4, "workers": 2}, "or for a pinned cell with labels.pinned_cell (attic)"),
        ({"tenant": "green", "labels": (("pinned_cell", "attic"),)}, "labels.pinned_cell is 'attic', which tenant"),
        ({"tenant": "green", "device_types": (DeviceType("V100"),)}, "gpu is V100; tenant 'green' owns T4"),
    ],
)
def test_what_cells_can_never_give_is_refused_by_field(fields: dict[str, Any], message: str) -> None:
    refused = world().engine.refuse(job("j", **fields))

    assert refused is not None
    assert message in refused


def test_without_a_guarantee_no_share_is_needed() -> None:
    assert world().engine.refuse(job("j", tenant=TenantId("nobody"), gpus=4, workers=3, priority=-1)) is None


def test_several_types_that_will_do_for_all_roles_are_accepted() -> None:
    either = (DeviceType("V100"), DeviceType("T4"))
    w = world()
    asked = job(
        "j", tenant=TenantId("green"), roles=(Role(name="a", device_types=either), Role(name="b", device_types=either))
    )

    assert w.engine.refuse(asked) is None
    w.settle(w.submit(job=asked))
    assert w.states() == {"j": "running"}


def test_a_node_selector_is_honoured() -> None:
    plain = read_cluster(str(HALL))
    nodes = tuple(replace(node, labels=(("name", str(node.id)),)) for node in plain.nodes)
    w = World(of=replace(plain, nodes=nodes), tenancy="cells", policy="fifo:backfill=true")
    fits = [index for index, each in enumerate(nodes) if each.id == "r1b"]
    role = Role(device_milli=WHOLE, requires=((Requirement("name", "In", ("r1b",)),),))

    w.settle(w.submit(job=job("here", roles=(role,), tenant=TenantId("green"))))
    w.settle(w.submit(job=job("nowhere", roles=(elsewhere(role),), tenant=TenantId("green"))))

    assert [slot.node for slot in w.live("here").placement or ()] == fits
    assert w.code("nowhere") is ReasonCode.NO_MATCHING_NODE


def test_a_reserved_node_is_left_to_those_that_tolerate_it() -> None:
    w = World(of=read_cluster(str(HALL)), tenancy="cells", policy="fifo:backfill=true")
    for account in w.state.inventory.nodes:
        w.step(NodeReserved(account.node.id, (Taint(RESERVED, "course.1"),)))
    role = Role(device_milli=WHOLE, tolerates=(Toleration(RESERVED, "course.1"),))

    w.settle(w.submit(job=job("other", tenant=TenantId("green"))))
    w.settle(w.submit(job=job("member", roles=(role,), tenant=TenantId("green"))))

    assert w.states() == {"other": "waiting", "member": "running"}
    assert w.code("other") is ReasonCode.NO_MATCHING_NODE


def elsewhere(role: Role) -> Role:
    return replace(role, requires=((Requirement("name", "In", ("nosuch",)),),))


def test_an_opportunistic_job_can_not_ask_for_a_pinned_cell() -> None:
    w = World(of=read_cluster(str(HALL)), tenancy="cells")

    asked = job("j", tenant=TenantId("blue"), priority=-1, labels=(("pinned_cell", "attic"),))

    assert w.engine.refuse(asked) == "labels.pinned_cell is 'attic'; a job of priority -1 can't ask for a pinned cell"
