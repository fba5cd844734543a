"""Shares by count: borrowing, giving back, hierarchies, users, and the guaranteed run time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builders import Script, World, job, on
from rota.core.errors import RotaError
from rota.core.messages.decisions import Stop
from rota.core.messages.events import PromisesChanged, TimerFired
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.cluster import Cluster
from rota.core.model.job import DeviceType, JobId, TenantId
from rota.core.model.tenants import ANY_TYPE, Share, TenantPlan
from rota.files import read_cluster
from rota.placement import style
from rota.policies import find_policy
from rota.tenancy import allocator

HALL = Path(__file__).parents[1] / "conformance" / "own" / "config" / "hall.yaml"


def world(
    shares: dict[str, Share], *, gpus: int = 4, nodes: int = 2, policy: str = "fifo:backfill=true", **rules: Any
) -> World:
    plain = Cluster.uniform(("gpu", gpus * nodes, gpus))
    plan = TenantPlan(shares={TenantId(name): share for name, share in shares.items()}, **rules)
    return World(of=Cluster(nodes=plain.nodes, tenants=plan), tenancy="quota", policy=policy)


def own(gpus: int, **fields: Any) -> Share:
    return Share(guaranteed={ANY_TYPE: gpus}, **fields)


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


@pytest.mark.parametrize(("priority", "waits"), [(0, "long"), (4, "long"), (5, "short"), (6, "short")])
def test_a_policy_preempts_no_job_of_a_higher_priority(priority: int, waits: str) -> None:
    w = world({"a": own(4)}, nodes=1, policy="srtf")
    w.settle(w.submit("long", gpus=4, tenant="a", priority=priority, work=1000.0))

    w.settle(w.submit("short", gpus=4, tenant="a", priority=4, work=10.0))

    assert w.states()[waits] == "waiting"


def test_a_policy_preempts_no_job_of_another_tenant() -> None:
    w = world({"a": own(4), "b": own(4)}, nodes=1, policy="srtf")
    w.settle(w.submit("long", gpus=4, tenant="a", work=1000.0))

    w.settle(w.submit("short", gpus=4, tenant="b", work=10.0))

    assert w.states() == {"long": "running", "short": "waiting"}


def test_a_policy_preempts_no_job_within_its_minimum_run_time() -> None:
    w = world({"a": own(4)}, nodes=1, policy="srtf", min_run_s=50.0)
    w.settle(w.submit("long", gpus=4, tenant="a", work=1000.0))
    w.pass_s(49.0).settle(w.submit("short", gpus=4, tenant="a", work=10.0))
    assert w.states()["short"] == "waiting"

    w.pass_s(1.0).settle(w.submit("other", gpus=4, tenant="a", work=5.0))

    assert w.states() == {"long": "waiting", "short": "waiting", "other": "running"}


def test_a_job_without_a_guarantee_preempts_no_job_with_one() -> None:
    w = world({"a": own(4)}, nodes=1, policy="srtf")
    w.settle(w.submit("long", gpus=4, tenant="a", work=1000.0))

    w.settle(w.submit("short", gpus=4, tenant="a", priority=-1, work=10.0))

    assert w.states() == {"long": "running", "short": "waiting"}


@pytest.mark.parametrize(
    ("first", "second", "returned"),
    [(1, 2, "b1"), (2, 1, "b2"), (1, 1, "b2")],
    ids=["low-first", "low-second", "latest"],
)
def test_a_tenant_returns_its_least_important_and_latest_job_first(first: int, second: int, returned: str) -> None:
    w = world({"a": own(4), "b": own(0)})
    w.settle(w.submit("b1", gpus=4, tenant="b", priority=first))
    w.pass_s(5.0).settle(w.submit("b2", gpus=4, tenant="b", priority=second))

    w.pass_s(5.0).settle(w.submit("a1", gpus=4, tenant="a"))

    assert w.states()[returned] == "waiting"
    assert w.states()["a1"] == "running"


def test_devices_of_a_tenant_that_owns_nothing_are_reclaimed() -> None:
    w = world({"a": own(4)}, nodes=1)
    w.settle(w.submit("s", gpus=4, tenant="stranger"))

    w.settle(w.submit("a1", gpus=4, tenant="a"))

    assert w.states() == {"s": "waiting", "a1": "running"}


def test_a_job_that_is_leaving_already_is_not_reclaimed_from() -> None:
    script = Script()
    plain = Cluster.uniform(("gpu", 8, 4))
    plan = TenantPlan(shares={TenantId("a"): own(4)})
    w = World(of=Cluster(nodes=plain.nodes, tenants=plan), tenancy="quota", policy=script)
    w.running("s", gpus=4, tenant="b", at=on("n1", 4))
    live = w.live("s")
    script.todo = [lambda draft: draft.release(live), lambda draft: draft.assign(live, on("n2", 4))]
    script.wakeup_s = 0.0
    w.timer()
    assert live.is_leaving
    w.submit("a1", gpus=4, tenant="a")

    draft = w.engine._draft()

    assert draft.allocator.displace(w.live("a1"), draft.inventory, 0.0) is None


def test_a_job_admitted_before_a_limit_was_set_is_exempt_from_it() -> None:
    w = world({"a": own(4)}, nodes=1)
    w.settle(w.submit("first", gpus=4, tenant="a"))
    w.settle(w.submit("waits", gpus=4, tenant="a"))
    w.step(PromisesChanged(tenants=TenantPlan(shares={TenantId("a"): own(2, limit={ANY_TYPE: 2})})))

    w.settle(w.ended("first"))

    assert w.live("waits").demoted
    assert w.states()["waits"] == "running"


def test_a_share_that_the_tenant_uses_itself_is_not_called_lent() -> None:
    w = world({"a": own(4), "b": own(0)}, min_run_s=100.0)
    w.settle(w.submit("a1", gpus=4, tenant="a"))
    w.settle(w.submit("b1", gpus=4, tenant="b"))

    w.settle(w.submit("a2", gpus=4, tenant="a"))

    assert w.code("a2") is ReasonCode.SHARE_USED


def test_a_reservation_counts_only_what_comes_back_of_its_own_type() -> None:
    nodes = Cluster.uniform(("x", 4, 4), ("y", 4, 4)).nodes
    plan = TenantPlan(shares={TenantId("a"): Share(guaranteed={DeviceType("x"): 4, DeviceType("y"): 4})})
    w = World(of=Cluster(nodes=nodes, tenants=plan), tenancy="quota", policy="easy")
    for name, kind, work in (("x1", "x", 100.0), ("y1", "y", 10.0)):
        w.settle(w.submit(name, gpus=3, tenant="a", device_types=(DeviceType(kind),), work=work))
    w.settle(w.submit("head", gpus=4, tenant="a", device_types=(DeviceType("x"),), work=10.0))
    w.settle(w.submit("long", gpus=1, tenant="a", device_types=(DeviceType("x"),), work=50.0))

    assert w.states()["long"] == "running"


def test_of_equal_jobs_the_one_that_started_last_is_reclaimed_from() -> None:
    w = world({"a": own(4), "b": own(0)})
    w.submit("early", gpus=4, tenant="b", held=True)
    w.settle(w.submit("late", gpus=4, tenant="b"))
    w.pass_s(5.0).settle(w.release("early"))

    w.pass_s(5.0).settle(w.submit("a1", gpus=4, tenant="a"))

    assert w.states() == {"early": "waiting", "late": "running", "a1": "running"}


def test_a_reservation_in_a_share_counts_only_holders_with_a_guarantee() -> None:
    """The opportunistic job holds nothing of the share, so that its end brings the waiting job no nearer."""
    w = world({"a": own(4), "b": own(0)})
    w.running("o", gpus=4, tenant="a", priority=-1, at=on("n1", 4))
    w.running("a1", gpus=3, tenant="a", at=on("n2", 3))
    w.settle(w.submit("a2", gpus=2, tenant="a"))
    inventory, shortage = w.state.inventory, w._allocator.reservation_shortage

    assert shortage.milli(w.live("a2"), inventory) == 1000
    assert shortage.freed_by(w.live("a1"), w.live("a2"), inventory) == 3000
    assert shortage.freed_by(w.live("o"), w.live("a2"), inventory) == 0
