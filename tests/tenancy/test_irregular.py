"""Cells with fewer or more parts than their type says: only what is whole is promised, nothing else is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import World, job
from rota.core.errors import RotaError
from rota.core.messages.events import NodeLost
from rota.core.model.job import NodeId, TenantId
from rota.files import read_cluster
from rota.files.hived import read_cell_plan
from rota.tenancy.cells.audit import audit

TYPES = """
  cellTypes:
    BOX: {childCellType: T4, childCellNumber: 2, isNodeLevel: true}
    RACK: {childCellType: BOX, childCellNumber: 2}
"""


def world(tmp_path: Path, racks: str, tenants: str) -> World:
    path = tmp_path / "hall.yaml"
    path.write_text(f"physicalCluster:{TYPES}  physicalCells: {racks}\nvirtualClusters: {tenants}\n", encoding="utf-8")
    return World(of=read_cluster(str(path)), tenancy="cells", policy="fifo:backfill=true")


def rack(*boxes: str, pinned: str = "") -> str:
    pin = f", pinnedCellId: {pinned}" if pinned else ""
    return f"{{cellType: RACK{pin}, cellChildren: [{', '.join(f'{{cellAddress: {box}}}' for box in boxes)}]}}"


def test_a_rack_that_lacks_a_node_is_not_given_away_as_a_rack(tmp_path: Path) -> None:
    racks = f"[{rack('a1')}, {rack('b1', 'b2')}]"
    tenants = (
        "{green: {virtualCells: [{cellType: RACK, cellNumber: 1}]}, "
        "blue: {virtualCells: [{cellType: RACK.BOX, cellNumber: 1}]}}"
    )
    w = world(tmp_path, racks, tenants)
    w.settle(w.submit("b", tenant="blue", gpus=2))

    w.settle(w.submit("g", tenant="green", gpus=2, workers=2))

    assert w.states() == {"b": "running", "g": "running"}
    assert {w.cluster.nodes[slot.node].id for slot in w.live("b").placement or ()} == {"a1"}


def test_a_rack_that_lacks_a_node_does_not_count_as_one(tmp_path: Path) -> None:
    racks = f"[{rack('a1')}, {rack('b1', 'b2')}]"

    with pytest.raises(
        RotaError, match=r"tenants own 2 cells of 'RACK' in chain 'RACK' \(level 3\), of which 1 are left"
    ):
        world(tmp_path, racks, "{green: {virtualCells: [{cellType: RACK, cellNumber: 2}]}}")


def test_a_pinned_rack_that_lacks_a_node_is_what_it_is(tmp_path: Path) -> None:
    racks = f"[{rack('a1', pinned='attic')}, {rack('b1', 'b2')}]"
    w = world(tmp_path, racks, "{green: {pinnedCells: [{pinnedCellId: attic}]}}")
    wish = (("pinned_cell", "attic"),)

    w.settle(w.submit("g", tenant="green", gpus=2, labels=wish))

    assert {w.cluster.nodes[slot.node].id for slot in w.live("g").placement or ()} == {"a1"}
    refused = w.engine.refuse(job("two", gpus=2, workers=2, tenant=TenantId("green"), labels=wish))
    assert refused is not None
    assert refused.startswith("gpus: the job needs 4 devices, tenant 'green' owns 2 of one type")


def test_a_node_too_many_stands_in_for_one_that_is_lost(tmp_path: Path) -> None:
    w = world(tmp_path, f"[{rack('a1', 'a2', 'a3')}]", "{green: {virtualCells: [{cellType: RACK, cellNumber: 1}]}}")
    w.settle(w.submit("one", tenant="green", gpus=2))
    w.step(NodeLost(NodeId("a3")))

    w.settle(w.submit("two", tenant="green", gpus=2))

    assert w.states() == {"one": "running", "two": "running"}


def test_where_all_racks_list_fewer_that_is_what_a_rack_is(tmp_path: Path) -> None:
    w = world(tmp_path, f"[{rack('a1')}, {rack('b1')}]", "{green: {virtualCells: [{cellType: RACK, cellNumber: 2}]}}")

    w.settle(w.submit("g", tenant="green", gpus=2, workers=2))

    assert w.states() == {"g": "running"}


def test_everything_odd_is_found_at_once(tmp_path: Path) -> None:
    racks = f"[{rack('a1', pinned='attic')}, {rack('b1', 'b2')}]"
    pin = "pinnedCells: [{pinnedCellId: attic}]"
    tenants = f"{{green: {{virtualCells: [{{cellType: RACK, cellNumber: 2}}], {pin}}}, blue: {{{pin}}}}}"
    path = tmp_path / "hall.yaml"
    path.write_text(f"physicalCluster:{TYPES}  physicalCells: {racks}\nvirtualClusters: {tenants}\n", encoding="utf-8")

    assert [finding.partition(" ")[0] for finding in audit(read_cell_plan(path))] == [
        "physicalCluster.physicalCells[0].cellChildren",
        "virtualClusters.blue.pinnedCells[0].pinnedCellId",
        "virtualClusters:",
    ]
