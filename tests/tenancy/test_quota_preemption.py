"""Which jobs a policy and a reclaiming tenant may stop, and in which order."""

from __future__ import annotations

import pytest

from builders import Script, World, on
from rota.core.messages.events import PromisesChanged
from rota.core.messages.reasons import ReasonCode
from rota.core.model.cluster import Cluster
from rota.core.model.job import DeviceType, TenantId
from rota.core.model.tenants import ANY_TYPE, Share, TenantPlan
from tenancy.quota_world import own, world


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
