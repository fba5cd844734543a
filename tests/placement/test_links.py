"""Placement by links: below one switch where that has room, though nodes elsewhere are emptier."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.core.model.job import Job, JobId, Role
from rota.core.model.placement import Slot
from rota.core.state.inventory import Inventory
from rota.placement import style

TREE = "topology: fat-tree\nper_leaf: 2\nspines: 1\noversubscription: 8\nlink: 10Gbps\n"


def spans(tmp_path: Path, spec: str, taken: list[int], tasks: int) -> list[int] | None:
    """The nodes that a job of one-device tasks gets on eight nodes of two devices, two of them below each leaf."""
    (tmp_path / "net.yaml").write_text(TREE)
    cluster = Cluster.uniform(("gpu", 16, 2))
    inventory = Inventory(cluster)
    for node, devices in enumerate(taken):
        if devices:
            inventory.take((Slot(node, (1 << devices) - 1, devices),), (Role(count=devices),))
    job = Job(id=JobId("j"), roles=(Role(count=tasks),), labels=(("model", "resnet50"),))
    found = style(spec.format(tmp_path / "net.yaml")).find(inventory, job, None)
    return None if found is None else sorted(slot.node for slot in found)


def test_tasks_stay_below_one_switch(tmp_path: Path) -> None:
    taken = [1, 2, 1, 2, 1, 1, 1, 2]

    assert spans(tmp_path, "links:{}", taken, 2) == [4, 5]
    assert spans(tmp_path, "any", taken, 2) == [0, 2]


def test_a_node_is_nearer_than_a_switch(tmp_path: Path) -> None:
    assert spans(tmp_path, "links:{}", [1, 1, 2, 0, 2, 2, 2, 2], 2) == [3]


def test_nodes_are_filled_up_before_empty_ones_are_begun(tmp_path: Path) -> None:
    """A job on one node leaves whole nodes to jobs that need them."""
    assert spans(tmp_path, "links:{}", [0, 0, 0, 1, 0, 0, 0, 0], 1) == [3]
    assert spans(tmp_path, "cassini:{}", [0, 0, 0, 1, 0, 0, 0, 0], 1) == [3]


def test_a_larger_job_takes_whole_switches(tmp_path: Path) -> None:
    assert spans(tmp_path, "links:{}", [0, 0, 1, 0, 0, 1, 0, 0], 8) == [0, 1, 6, 7]
    assert spans(tmp_path, "links:{}", [2] * 7 + [1], 4) is None


def test_the_file_must_be_given() -> None:
    with pytest.raises(RotaError, match="links:FILE"):
        style("links")
