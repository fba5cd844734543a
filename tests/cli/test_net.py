"""`rota net`: topology, paths, load of links, and its errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rota.cli.net import app
from rota.cli.net_bench import written
from rota.drivers.simulator.load import load
from rota.drivers.simulator.study import simulate
from rota.files.network.network_file import read_network_file
from rota.network.load import NetworkLoad
from rota.report.link_load import link_series, load_page
from rota.scenario import Scenario
from rota.store.journal import JournalReader, JournalWriter

TREE = "topology: fat-tree\nper_leaf: 2\nspines: 2\noversubscription: 2\nlink: 10Gbps\n"
JOBS = 'id,submit_s,work,labels,gpus\na,0,100,"{""model"":""resnet50""}",3\nb,5,100,"{""model"":""vgg16""}",3\n'


def shown(*arguments: str) -> list[dict[str, object]]:
    result = CliRunner().invoke(app, [*arguments, "-o", "json"])
    assert result.exit_code == 0, result.output
    found: list[dict[str, object]] = json.loads(result.stdout)
    return found


def test_links_are_shown_by_layer(tmp_path: Path) -> None:
    file = tmp_path / "net.yaml"
    file.write_text(TREE)

    rows = shown("show", str(file), "--cluster", "gpu=4/1")

    assert [(row["between"], row["count"], row["gbit_per_s"]) for row in rows] == [
        ("leaf and node", 4, 10.0),
        ("leaf and spine", 4, 5.0),
    ]


def test_paths_between_two_nodes_are_listed(tmp_path: Path) -> None:
    file = tmp_path / "net.yaml"
    file.write_text(TREE)

    rows = shown("show", str(file), "--cluster", "gpu=4/1", "--path", "n1", "n4")

    assert [row["path"] for row in rows] == ["n1 leaf0 spine0.0 leaf1 n4", "n1 leaf0 spine0.1 leaf1 n4"]
    refused = CliRunner().invoke(app, ["show", str(file), "--cluster", "gpu=4/1", "--path", "n1", "n9"])
    assert "no vertex is named 'n9'" in str(refused.exception)


def test_the_load_of_links_comes_from_a_journal(tmp_path: Path) -> None:
    (tmp_path / "net.yaml").write_text(TREE)
    (tmp_path / "jobs.csv").write_text(JOBS)
    scenario = Scenario(
        policies=("fifo",),
        cluster="gpu=8/2",
        placement="spread",
        trace=str(tmp_path / "jobs.csv"),
        network=str(tmp_path / "net.yaml"),
        profiles="none",
    )
    loaded = load(scenario)
    path = tmp_path / "journal.jsonl"
    with JournalWriter(path, loaded.header_of("fifo")) as journal:
        simulate(loaded.workload, "fifo", loaded.setting, journal=journal)

    rows = shown("load", str(path))
    network = read_network_file(tmp_path / "net.yaml", ["n1", "n2", "n3", "n4"])
    series = link_series(JournalReader(path), network)

    assert rows
    assert all(0 < float(str(row["mean_load"])) <= float(str(row["peak_load"])) <= 1 for row in rows)
    assert all(each.load[-1] == 0 for each in series)
    assert series[0].link in load_page(series, "Links")
    assert NetworkLoad(network, loaded.setting.cluster.nodes).link_bytes_per_s() == {}


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_measured_network_predicts_its_own_measurements(ranks: int, tmp_path: Path) -> None:
    rate, latency_s = 1e9, 2e-4
    points = [(size, latency_s + 2 * (ranks - 1) / ranks * size / rate) for size in (1024, 10**6, 2 * 10**6, 4 * 10**6)]

    out, table = written(tmp_path / "net.yaml", ranks, points, between_nodes=True)
    model = read_network_file(out)

    assert table.exists()
    assert model.topology.links[0].bytes_per_s == pytest.approx(rate, rel=0.02)
    assert model.message_s * 2 * (ranks - 1) == pytest.approx(points[0][1], rel=0.01)
