"""HiveD's files: as they are, wrapped by OpenPAI, and broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.cli.main import status
from rota.core.errors import RotaError
from rota.core.model.cells import CellTypeName
from rota.files import read_cluster
from rota.files.hived import read_cell_plan
from rota.placement import style
from rota.tenancy import allocator
from rota.tenancy.cells.build import build

HALL = Path(__file__).parents[1] / "conformance" / "own" / "config" / "hall.yaml"


def changed(tmp_path: Path, *changes: tuple[str, str]) -> Path:
    text = HALL.read_text()
    for before, after in changes:
        assert before in text, before
        text = text.replace(before, after, 1)
    path = tmp_path / "hall.yaml"
    path.write_text(text)
    return path


def test_machines_become_nodes() -> None:
    cluster = read_cluster(str(HALL))

    assert [str(node.id) for node in cluster.nodes] == ["r1a", "r1b", "r2a", "r2b", "lone"]
    assert cluster.nodes[0].sockets == (2, 2)
    assert len({node.rack for node in cluster.nodes}) == 3


def test_the_file_inside_openpais(tmp_path: Path) -> None:
    inner = "".join(f"    {line}\n" for line in HALL.read_text().splitlines())
    path = tmp_path / "services-configuration.yaml"
    path.write_text(f"cluster: {{common: {{}}}}\nhivedscheduler:\n  config: |\n{inner}")

    assert read_cell_plan(path) == read_cell_plan(HALL)


def test_addresses_are_inferred() -> None:
    forest = build(read_cell_plan(HALL))
    chain = CellTypeName("RACK")

    assert [device.address for device in (forest.devices[chain, "r1b", i] for i in range(4))] == [
        "0/r1b/0/0",
        "0/r1b/0/1",
        "0/r1b/1/2",
        "0/r1b/1/3",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("childCellNumber: 2}", "childCellNumber: two}"), "childCellNumber is 'two'; it must be a whole number"),
        (("cellNumber: 1", "cellNumbr: 1"), "unknown field virtualClusters.green.virtualCells[0].cellNumbr"),
        (("isNodeLevel: true", "isNodeLevel: 3"), "cellTypes.BOX.isNodeLevel is 3; it must be true or false"),
        (("{cellAddress: r1a}", "{}"), "physicalCells[0].cellChildren[0].cellAddress is missing"),
        (("cellType: RACK\n", "cellType: RAKC\n"), "physicalCells[0].cellType is 'RAKC', which cellTypes lacks"),
    ],
)
def test_broken_files(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    path = changed(tmp_path, change)

    with pytest.raises(RotaError) as error:
        read_cluster(str(path))

    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("cellType: RACK.BOX", "cellType: BOX.RACK"), "ends in 'RACK', which is no part of 'BOX'"),
        (("cellType: RACK.BOX", "cellType: HALL.BOX"), "starts with 'HALL', of which there is no physical cell"),
        (("pinnedCellId: attic\n", "pinnedCellId: cellar\n"), "is 'cellar', which no physical cell bears"),
        (("cellNumber: 1}\n  blue", "cellNumber: 3}\n  blue"), "tenants own 3 cells of 'RACK'"),
    ],
)
def test_promises_that_cannot_be_kept(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(RotaError) as error:
        build(read_cell_plan(changed(tmp_path, change)))

    assert message in str(error.value)


@pytest.mark.parametrize(
    ("second", "promises", "message"),
    [
        (
            "{cellAddress: c}",  # one node fewer than the type says
            "{a: {virtualCells: [{cellType: RACK.BOX, cellNumber: 4}]}}",
            "tenants own 4 cells of 'BOX' in chain 'RACK' (level 2), of which 3 are left: "
            "virtualClusters.a.virtualCells[0]",
        ),
        (
            "{cellAddress: c, pinnedCellId: q}, {cellAddress: d}",
            "{a: {virtualCells: [{cellType: RACK, cellNumber: 1}]}, "
            "b: {pinnedCells: [{pinnedCellId: p}, {pinnedCellId: q}]}}",
            "pinned cells break up so many large cells of chain 'RACK'",
        ),
    ],
)
def test_promises_beyond_what_is_there(second: str, promises: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "racks.yaml"
    path.write_text(
        "physicalCluster:\n"
        "  cellTypes:\n"
        "    BOX: {childCellType: T4, childCellNumber: 4, isNodeLevel: true}\n"
        "    RACK: {childCellType: BOX, childCellNumber: 2}\n"
        "  physicalCells:\n"
        "  - {cellType: RACK, cellChildren: [{cellAddress: a, pinnedCellId: p}, {cellAddress: b}]}\n"
        f"  - {{cellType: RACK, cellChildren: [{second}]}}\n"
        f"virtualClusters: {promises}\n"
    )

    with pytest.raises(RotaError) as error:
        allocator("cells", style("any"), read_cluster(str(path)))

    assert message in str(error.value)
    assert status(["check", str(path)]) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("[{cellAddress: r1a}, {cellAddress: r1b}]", "[{cellAddress: r1a}]"),
            "physicalCluster.physicalCells[0].cellChildren has 1 entries; a 'RACK' has 2",
        ),
        (
            ("{cellType: RACK, cellNumber: 1}", "{cellType: RACK.BOX.PAIR.T4, cellNumber: 2}"),
            "virtualClusters.green.virtualCells: all cells are single devices",
        ),
        (
            ("{cellType: RACK.BOX, cellNumber: 1}", "{cellType: RACK.PAIR, cellNumber: 1}"),
            "virtualClusters.blue.virtualCells[0].cellType is 'RACK.PAIR'; the way down is 'RACK.BOX.PAIR'",
        ),
        (
            (
                "    - {cellType: RACK, cellNumber: 1}\n",
                "    - {cellType: RACK, cellNumber: 1}\n    pinnedCells: [{pinnedCellId: attic}]\n",
            ),
            "virtualClusters.blue.pinnedCells[0].pinnedCellId is 'attic', which "
            "virtualClusters.green.pinnedCells[0].pinnedCellId names too",
        ),
        (("cellNumber: 1}\n  blue", "cellNumber: 9}\n  blue"), "virtualClusters: tenants own 9 cells of 'RACK'"),
        (("cellNumber: 1}\n  blue", "cellNumber: 9}\n  blue"), "left: virtualClusters.green.virtualCells[0]"),
        (
            (
                "[{cellAddress: r2a}, {cellAddress: r2b}]",
                "[{cellAddress: r2a, pinnedCellId: nook}, {cellAddress: r2b, pinnedCellId: nook}, {cellAddress: r2c}]",
            ),
            "physicalCells[1].cellChildren[1].pinnedCellId is 'nook', which is pinned elsewhere too",
        ),
    ],
)
def test_check_names_the_field(
    change: tuple[str, str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = status(["check", str(changed(tmp_path, change)), "-o", "json"])

    assert code == 1
    assert message in capsys.readouterr().out


def test_check_is_content_with_a_good_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["check", str(HALL)]) == 0
    assert capsys.readouterr().out == ""


def test_check_counts_shares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(
        "nodes: [{gpus: 8}]\n"
        "tenants: {a: {gpus: 6}, b: {gpus: {gpu: 4, v100: 1}}, c: {gpus: 4, parent: a}, d: {gpus: 4}}\n"
    )

    assert status(["check", str(path), "-o", "json"]) == 1
    told = capsys.readouterr().out
    assert "tenants.b.gpus.v100: the cluster has no 'v100'; it has gpu" in told
    assert "tenants: the shares of a, b, d add up to 15 devices; the cluster has 8" in told


def test_check_counts_shares_inside_a_tenant_by_all_types(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text("nodes: [{gpus: 16}]\ntenants: {lab: {gpus: 8}, nlp: {gpus: {gpu: 12}, parent: lab}}\n")

    assert status(["check", str(path), "-o", "json"]) == 1
    assert "tenants.lab: the shares of nlp add up to 12 devices; it has 8" in capsys.readouterr().out
