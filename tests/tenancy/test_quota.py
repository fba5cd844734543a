"""Shares by count: borrowing, giving back, hierarchies, users, and the guaranteed run time."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import World, job
from rota.core.errors import RotaError
from rota.core.messages.decisions import Stop
from rota.core.messages.events import TimerFired
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import JobId, Role, TenantId
from rota.core.model.labels import Requirement
from rota.core.model.tenants import ANY_TYPE
from rota.files import read_cluster
from rota.placement import style
from rota.policies import find_policy
from rota.tenancy import allocator
from tenancy.quota_world import own, world

HALL = Path(__file__).parents[1] / "conformance" / "own" / "config" / "hall.yaml"


def test_idle_devices_are_borrowed_and_given_back() -> None:
    w = world({"a": own(4), "b": own(4)})
    for name in ("a1", "a2"):
        w.settle(w.submit(name, gpus=4, tenant="a"))
    assert w.states() == {"a1": "running", "a2": "running"}

    w.settle(w.submit("b1", gpus=4, tenant="b"))

    assert w.states() == {"a1": "running", "a2": "waiting", "b1": "running"}
    reason = w.why("a2")
    assert reason == Reason(code=ReasonCode.SHARE_USED, need_milli=4000, owned_milli=4000, tenant=TenantId("a"))
    assert reason.sentence() == (
        "needs 4 devices; of the share of tenant a, 4 devices, 0 devices are left, and too few are idle to borrow; "
        "starts when jobs of the tenant end, or when others leave enough idle"
    )


def test_a_job_larger_than_its_share_names_the_largest_there_is() -> None:
    w = world({"lab": own(6), "a": own(2, parent=TenantId("lab")), "b": own(2)})
    w.settle(w.submit("a1", gpus=1, tenant="a"))
    w.settle(w.submit("b1", gpus=2, tenant="b"))

    w.settle(w.submit("a2", gpus=3, workers=2, tenant="a"))
    assert w.why("a2") == Reason(
        code=ReasonCode.SHARE_USED, need_milli=6000, free_milli=5000, owned_milli=6000, tenant=TenantId("lab")
    )
    w.settle(w.submit("b2", gpus=3, workers=2, tenant="b"))
    assert w.why("b2") == Reason(code=ReasonCode.SHARE_USED, need_milli=6000, owned_milli=2000, tenant=TenantId("b"))
    w.settle(w.submit("o", gpus=3, workers=2, tenant="b", priority=-1))
    assert w.code("o") is ReasonCode.DEVICES_BUSY


def test_a_job_without_devices_waits_for_labels_and_has_no_share() -> None:
    w = world({"a": own(4)})
    role = Role(device_milli=0, requires=((Requirement("zone", "In", ("x",)),),))
    w.settle(w.submit("none", tenant="a", roles=(role,)))
    assert w.states() == {"none": "waiting"}
    assert w.code("none") is ReasonCode.NO_MATCHING_NODE


def test_nobody_gives_back_what_is_its_own() -> None:
    w = world({"a": own(8), "b": own(0)})
    for name in ("a1", "a2"):
        w.settle(w.submit(name, gpus=4, tenant="a"))

    w.settle(w.submit("b1", gpus=4, tenant="b"))

    assert w.states()["b1"] == "waiting"


def test_work_without_a_guarantee_goes_first() -> None:
    w = world({"a": own(4), "b": own(4)})
    w.settle(w.submit("o", gpus=4, tenant="a", priority=-1))
    w.settle(w.submit("a1", gpus=4, tenant="a"))

    w.settle(w.submit("b1", gpus=4, tenant="b"))

    assert w.states() == {"o": "waiting", "a1": "running", "b1": "running"}


def test_siblings_share_before_strangers_do() -> None:
    shares = {"lab": own(8), "x": own(4, parent=TenantId("lab")), "y": own(4, parent=TenantId("lab")), "z": own(0)}
    w = world(shares)
    w.settle(w.submit("z1", gpus=4, tenant="z"))
    w.settle(w.submit("x1", gpus=4, tenant="x"))

    w.settle(w.submit("x2", gpus=4, tenant="x"))

    assert w.states() == {"z1": "waiting", "x1": "running", "x2": "running"}


def test_limits_hold_even_when_devices_are_idle() -> None:
    w = world({"a": own(2, limit={ANY_TYPE: 4})})
    w.settle(w.submit("a1", gpus=4, tenant="a"))

    w.settle(w.submit("a2", gpus=2, tenant="a"))

    assert w.code("a2") is ReasonCode.QUOTA_USED


def test_one_user_does_not_take_it_all() -> None:
    w = world({"a": own(8, per_user=4)})
    w.settle(w.submit("a1", gpus=4, tenant="a", user="ann"))
    w.settle(w.submit("a2", gpus=1, tenant="a", user="ann"))
    w.settle(w.submit("a3", gpus=4, tenant="a", user="bob"))

    assert w.states() == {"a1": "running", "a2": "waiting", "a3": "running"}
    reason = w.why("a2")
    assert reason is not None
    assert reason.sentence() == (
        "needs 1 device; one user of tenant a may hold 4 devices, 0 devices more now; "
        "starts when the user's other jobs end"
    )


def test_a_borrower_has_its_guaranteed_run_time() -> None:
    w = world({"a": own(4), "b": own(4)}, min_run_s=100.0)
    for name in ("a1", "a2"):
        w.settle(w.submit(name, gpus=4, tenant="a"))
    w.pass_s(10).settle(w.submit("b1", gpus=4, tenant="b"))
    assert w.states()["b1"] == "waiting"
    assert w.engine.wakeup_s == 100.0
    assert w.why("b1") == Reason(
        code=ReasonCode.SHARE_LENT, need_milli=4000, tenant=TenantId("b"), job=JobId("a1"), until_s=100.0
    )

    w.settle(w.timer(100.0))

    assert w.states()["b1"] == "running"


def test_a_guaranteed_run_time_ends_in_a_copy_too() -> None:
    w = world({"a": own(4), "b": own(4)}, min_run_s=100.0)
    for name in ("a1", "a2"):
        w.settle(w.submit(name, gpus=4, tenant="a"))
    w.pass_s(10).settle(w.submit("b1", gpus=4, tenant="b"))
    declared, options = find_policy("fifo:backfill=true")
    alloc = allocator("quota", style("consolidate"), w.cluster)
    twin = w.engine.fork(declared.build(options, alloc), allocator=alloc)

    assert twin.wakeup_s == 100.0
    assert [type(order) for order in twin.step(100.0, [TimerFired()])] == [Stop]


def test_who_has_had_most_lately_gives_back_first() -> None:
    w = world({"a": own(0), "b": own(0), "c": own(4)}, half_life_s=1000.0)
    w.settle(w.submit("a1", gpus=4, tenant="a"))
    w.pass_s(500).settle(w.submit("b1", gpus=4, tenant="b"))

    w.pass_s(10).settle(w.submit("c1", gpus=4, tenant="c"))

    assert w.states() == {"a1": "waiting", "b1": "running", "c1": "running"}


def test_tenants_in_a_cluster_file(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(
        "nodes: [{gpus: 8, count: 2}]\n"
        "tenants:\n"
        "  lab: {gpus: 12}\n"
        "  nlp: {gpus: {gpu: 8}, parent: lab, per_user: 4, limit: 10}\n"
        "fairness: {half_life: 2d, min_run: 10m}\n"
    )

    plan = read_cluster(str(path)).tenants

    assert plan is not None
    assert plan.half_life_s == 2 * 86400
    assert plan.min_run_s == 600
    assert plan.shares[TenantId("nlp")].per_user == 4
    assert plan.shares[TenantId("lab")].guaranteed == {ANY_TYPE: 12}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tenants: {a: {gpus: -1}}", "tenants.a.gpus.* is -1; it must be at least 0"),
        ("tenants: {a: {parent: b}}", "tenants.a.parent is 'b'; known: a"),
        ("tenants: {a: {gpus: 4, limit: 2}}", "limit.* is 2, less than the 4 guaranteed; raise it"),
        ("tenants: {a: {wieght: 2}}", "unknown field tenants.a.wieght; did you mean 'weight'?"),
    ],
)
def test_broken_tenants(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(f"nodes: [{{gpus: 8}}]\n{text}\n")

    with pytest.raises(RotaError) as error:
        read_cluster(str(path))

    assert str(error.value) == f"{path}: {message}"


def test_quota_needs_tenants() -> None:
    with pytest.raises(RotaError, match="needs a cluster file with a section `tenants`"):
        World(gpus=4, tenancy="quota")
    with pytest.raises(RotaError, match="unknown tenancy 'cels'; did you mean 'cells'"):
        allocator("cels", None)  # type: ignore[arg-type]  # the name is wrong before the placer matters


def test_cells_are_shares_by_count() -> None:
    w = World(of=read_cluster(str(HALL)), tenancy="quota", policy="fifo:backfill=true")
    for number in range(5):
        w.settle(w.submit(f"g{number}", tenant="green", gpus=4))
    assert set(w.states().values()) == {"running"}

    w.settle(w.submit("b", tenant="blue", gpus=4, workers=2))

    assert sorted(w.states().values()) == ["running"] * 4 + ["waiting"] * 2
    assert w.states()["b"] == "running"


def test_a_reservation_counts_what_comes_back_to_the_share() -> None:
    w = world({"a": own(4), "b": own(4)}, policy="easy")
    w.settle(w.submit("b1", gpus=2, tenant="b", work=10.0))
    w.settle(w.submit("a1", gpus=3, tenant="a", work=100.0))
    w.settle(w.submit("b2", gpus=2, tenant="b", work=500.0))
    w.settle(w.submit("head", gpus=4, tenant="a", work=10.0))
    w.settle(w.submit("long", gpus=1, tenant="a", work=200.0))
    assert w.why("long") == Reason(code=ReasonCode.WOULD_DELAY, job=JobId("head"), until_s=100.0)

    w.settle(w.submit("short", gpus=1, tenant="a", work=90.0))
    assert w.states()["short"] == "running"


def test_a_reservation_beyond_the_share_waits_for_anyone() -> None:
    w = world({"a": own(2), "b": own(6)}, policy="easy")
    w.settle(w.submit("b1", gpus=4, tenant="b", work=10.0))
    w.settle(w.submit("a1", gpus=2, tenant="a", work=100.0))
    w.settle(w.submit("head", gpus=3, workers=2, tenant="a", work=10.0))
    w.settle(w.submit("long", gpus=2, tenant="a", work=50.0))

    assert w.why("long") == Reason(code=ReasonCode.WOULD_DELAY, job=JobId("head"), until_s=10.0)


def test_a_job_larger_than_a_limit_is_refused() -> None:
    w = world({"lab": own(4, limit={ANY_TYPE: 6}), "a": own(2, parent=TenantId("lab"), per_user=3)})

    assert w.engine.refuse(job("j", gpus=4, tenant=TenantId("a"), user="ann")) == (
        "tenants.a.per_user is 3; a job of 4 devices can never start there"
    )
    assert w.engine.refuse(job("j", gpus=4, workers=2, tenant=TenantId("a"))) == (
        "tenants.lab.limit is 6; a job of 8 devices can never start there"
    )
    assert w.engine.refuse(job("j", gpus=4, tenant=TenantId("a"))) is None


def test_a_user_limit_counts_in_all_tenants_below() -> None:
    w = world({"lab": own(8, per_user=4), "a": own(4, parent=TenantId("lab")), "b": own(4, parent=TenantId("lab"))})
    w.settle(w.submit("a1", gpus=3, tenant="a", user="ann"))
    w.settle(w.submit("b1", gpus=2, tenant="b", user="ann"))

    assert w.why("b1") == Reason(
        code=ReasonCode.USER_LIMIT, need_milli=2000, free_milli=1000, owned_milli=4000, tenant=TenantId("lab")
    )
    w.settle(w.submit("b2", gpus=2, tenant="b", user="bob"))
    assert w.states()["b2"] == "running"


def test_equals_do_not_take_from_each_other() -> None:
    """Both borrow what their parent left idle, and so has neither more right; only the stranger has less."""
    lab = TenantId("lab")
    w = world({"lab": own(2), "x": own(0, parent=lab), "y": own(0, parent=lab), "z": own(0)}, gpus=1)
    w.settle(w.submit("x1", gpus=1, tenant="x"))
    w.pass_s(100.0).settle(w.submit("z1", gpus=1, tenant="z"))

    w.pass_s(1.0).settle(w.submit("x2", gpus=1, tenant="x"))
    assert w.states() == {"x1": "running", "z1": "waiting", "x2": "running"}

    assert w.submit("y1", gpus=1, tenant="y") == []


def test_a_tenants_promise_holds_against_the_tenant_above_it() -> None:
    w = world({"lab": own(8), "x": own(4, parent=TenantId("lab"))})
    for name in ("l1", "l2"):
        w.settle(w.submit(name, gpus=4, tenant="lab"))

    w.settle(w.submit("x1", gpus=4, tenant="x"))

    assert w.states() == {"l1": "running", "l2": "waiting", "x1": "running"}
    assert w.submit("x2", gpus=4, tenant="x") == []


def test_strangers_do_not_reclaim_what_stays_within_a_parents_share() -> None:
    """`x` uses what its sibling left idle; what `z` wants back is with `s`, however little that one has had."""
    lab = TenantId("lab")
    shares = {"lab": own(4), "x": own(0, parent=lab), "y": own(4, parent=lab), "z": own(4), "s": own(0)}
    w = world(shares)
    w.settle(w.submit("x1", gpus=4, tenant="x"))
    w.pass_s(100.0).settle(w.submit("s1", gpus=4, tenant="s"))

    w.pass_s(1.0).settle(w.submit("z1", gpus=4, tenant="z"))

    assert w.states() == {"x1": "running", "s1": "waiting", "z1": "running"}
