"""What tenants are promised and hold, in devices, as the pages say it; and what a what-if changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import DeviceType, Job, JobId, NodeId, Role, TenantId
from rota.core.model.placement import Slot
from rota.core.model.tenants import Share, TenantPlan
from rota.core.state.state import State
from rota.files.cluster_file import cluster_from_document
from rota.live.views.tenant_usage import TenantGuarantee, TenantUse, promises_of, uses_of
from rota.live.workers.whatif import changed, refuse_files

GPU = DeviceType("gpu")
HIVED = {
    "physicalCluster": {
        "cellTypes": {
            "BOX": {"childCellType": "T4", "childCellNumber": 4, "isNodeLevel": True},
            "ROOM": {"childCellType": "BOX", "childCellNumber": 3},
        },
        "physicalCells": [
            {
                "cellType": "ROOM",
                "cellChildren": [
                    {"cellAddress": "a", "pinnedCellId": "first"},
                    {"cellAddress": "b"},
                    {"cellAddress": "c"},
                ],
            }
        ],
    },
    "virtualClusters": {
        "vision": {"virtualCells": [{"cellType": "ROOM.BOX", "cellNumber": 2}]},
        "nlp": {"pinnedCells": [{"pinnedCellId": "first"}]},
    },
}


def cluster() -> Cluster:
    nodes = tuple(Node(id=NodeId(f"n{number}"), devices=4) for number in (1, 2))
    shares = {TenantId("vision"): Share(guaranteed={GPU: 4}), TenantId("nlp"): Share(guaranteed={GPU: 2})}
    return Cluster(nodes=nodes, tenants=TenantPlan(shares=shares))


def test_cells_are_counted_in_devices() -> None:
    promises = promises_of(cluster_from_document(HIVED, Path("lab")), "cells")

    assert promises == {
        "vision": TenantGuarantee(devices=8, words="2 × BOX"),
        "nlp": TenantGuarantee(devices=4, words="pinned first"),
    }


def test_promises_that_the_tenancy_in_use_does_not_keep_are_not_shown() -> None:
    assert promises_of(cluster(), "none") == {}
    assert promises_of(cluster(), "quota")["vision"] == TenantGuarantee(devices=4, words="4 gpu")


def test_what_is_held_beyond_the_promise_is_borrowed_and_somebody_lent_it() -> None:
    state = State(cluster())
    for name, tenant, node, devices, priority in (
        ("1", "vision", 0, 0b1111, 0),
        ("2", "vision", 1, 0b0011, 0),
        ("3", "guest", 1, 0b1100, -1),
    ):
        role = Role(device_milli=1000 * devices.bit_count())
        job = Job(id=JobId(name), tenant=TenantId(tenant), roles=(role,), priority=priority)
        live = state.admit(job, 1.0)
        state.inventory.take((Slot(node, devices),), job.roles)
        live.set_placement((Slot(node, devices),))
    waiting = state.admit(Job(id=JobId("4"), tenant=TenantId("nlp")), 1.0)
    assert waiting.placement is None

    uses = uses_of(state, promises_of(cluster(), "quota"))

    assert uses == {
        "vision": TenantUse(held=6.0, guaranteed=4, borrowed=2.0, lent=0.0, waiting=0, running=2),
        "guest": TenantUse(held=2.0, guaranteed=0, borrowed=2.0, lent=0.0, waiting=0, running=1),
        "nlp": TenantUse(held=0.0, guaranteed=2, borrowed=0.0, lent=2.0, waiting=1, running=0),
    }


def test_a_what_if_adds_nodes_and_changes_guarantees() -> None:
    after = changed(cluster(), added={GPU: 3}, guaranteed={TenantId("nlp"): {GPU: 6}})

    assert after.devices == 20
    assert len({node.id for node in after.nodes}) == 5
    assert after.tenants is not None
    assert after.tenants.shares[TenantId("nlp")].guaranteed == {GPU: 6}
    assert after.tenants.shares[TenantId("vision")].guaranteed == {GPU: 4}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"added": {DeviceType("tpu"): 1}}, "'tpu'"),
        ({"added": {GPU: 10**6}}, "1000000"),
        ({"guaranteed": {TenantId("guests"): {GPU: 1}}}, "'guests'"),
    ],
)
def test_a_what_if_that_makes_no_sense_is_refused_by_name(change: dict[str, Any], said: str) -> None:
    with pytest.raises(RotaError, match=said):
        changed(cluster(), **change)


@pytest.mark.parametrize("policy", ["./mine.py:fn", "/etc/passwd", "fifi", ""])
def test_a_what_if_takes_policies_by_name_only(policy: str) -> None:
    with pytest.raises(RotaError, match="unknown policy"):
        refuse_files(policy)
