"""The network file, by itself and in a simulation."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.drivers.simulator.load import load
from rota.drivers.simulator.notes import scenario_notes
from rota.drivers.simulator.study import simulate
from rota.files.network.network_file import network_from_spec, read_network_file
from rota.network.model import LinkMechanism, PhaseAlignment
from rota.scenario import Scenario, decode_scenario, encode_scenario

TWO = """
topology: links
link: 8Gbps
links: [{between: [n1, n2]}]
models:
  m: {compute: 600ms, bytes: 400MB, overlap: 0}
"""
JOBS = """id,submit_s,work,labels,gpus
a,0,1000,"{""model"":""m""}",2
b,0,1000,"{""model"":""m""}",2
"""


def written(folder: Path, text: str, name: str = "net.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def ends(folder: Path, network: str | None, cluster: str = "gpu=4/2") -> list[float]:
    trace = written(folder, JOBS, "jobs.csv")
    scenario = Scenario(
        policies=("fifo",), placement="spread", cluster=cluster, trace=str(trace), network=network, profiles="none"
    )
    loaded = load(scenario)
    return [row.end_s or 0.0 for row in simulate(loaded.workload, "fifo", loaded.setting).history.jobs]


def test_two_jobs_contend_in_a_simulation(tmp_path: Path) -> None:
    network = str(written(tmp_path, TWO))

    assert ends(tmp_path, None) == [1000.0, 1000.0]
    alone = 1000.0 / 0.6  # the trace's seconds are those of one node, where nothing is sent
    assert ends(tmp_path, network) == pytest.approx([1.4 * alone] * 2)
    assert ends(tmp_path, f"{network}:between=cassini") == pytest.approx([alone] * 2, rel=1e-3)
    assert ends(tmp_path, f"{network}:between=crux") == pytest.approx([alone] * 2, rel=1e-3)


def test_a_cluster_file_names_its_network(tmp_path: Path) -> None:
    written(tmp_path, TWO)
    cluster = written(tmp_path, "nodes: [{name: 'n[1-2]', gpus: 2}]\nnetwork: net.yaml\n", "cluster.yaml")

    assert ends(tmp_path, None, str(cluster)) == pytest.approx([1400 / 0.6] * 2)


def test_a_scenario_keeps_its_network() -> None:
    scenario = Scenario(policies=("fifo",), cluster="gpu=4/2", network="net.yaml:between=crux")

    assert decode_scenario(encode_scenario(scenario)) == scenario
    assert "network" not in encode_scenario(Scenario(policies=("fifo",), cluster="gpu=4/2"))


@pytest.mark.parametrize(
    ("text", "kind", "vertices"),
    [
        ("topology: fat-tree\nper_leaf: 4\nspines: 2\noversubscription: 3\n", "fat-tree", 16 + 4 + 2),
        ("topology: rail-optimised\nrails: 4\nisland: {gpus: 4, link: 1Tbps}\n", "rail-optimised", 16 * 5 + 4 + 4),
        ("topology: bigraph\nswitches: 2\n", "bigraph", 16 + 4),
        ("topology: torus\nshape: [4, 4]\nlatency: 2us\n", "torus", 16),
        ("topology: fat-tree\nnodes: ['n[1-16]', extra]\nper_leaf: 17\nspines: 1\n", "fat-tree", 17 + 2),
    ],
    ids=["fat tree", "rails", "bigraph", "torus", "own nodes"],
)
def test_topologies_by_name(text: str, kind: str, vertices: int, tmp_path: Path) -> None:
    nodes = [str(node.id) for node in Cluster.uniform(("gpu", 16, 1)).nodes]

    topology = read_network_file(written(tmp_path, text), nodes).topology

    assert topology.kind == kind
    assert len(topology.vertices) == vertices


def test_options_of_the_command_line_win(tmp_path: Path) -> None:
    path = written(tmp_path, TWO + "phases: aligned\n")

    found = network_from_spec(f"{path}:between=cassini,phases=random,seed=7", ["n1", "n2"])

    assert (found.mechanism, found.alignment, found.seed) == (LinkMechanism.CASSINI, PhaseAlignment.RANDOM, 7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("topology: star\n", "topology is 'star'"),
        ("topology: torus\n", "needs its shape"),
        ("topology: torus\nshape: [2]\nspines: 3\n", "a torus network has no field 'spines'"),
        ("topology: links\nlinks: [{between: [n1, switch], rate: 0Gbps}]\n", "rate"),
        ("topology: links\nlinks: [{between: [n1, switch]}]\n", "node 'n2' has no link"),
        ("topology: links\nlinks: [{between: [n1, n1]}]\n", "with itself"),
        ("topology: fat-tree\nlink: fast\n", "not a bandwidth"),
        ("topology: fat-tree\nmodels: {mine: {compute: 1}}\n", "models.mine: it needs compute and bytes"),
        ("topology: fat-tree\nmodels: {mine: {compute: 1, bytes: 1, collective: star}}\n", "collective"),
        ("topology: fat-tree\nefficiency: 2\n", "efficiency is 2"),
        ("topology: fat-tree\nlatency: soon\n", "not a duration"),
        ("topology: fat-tree\ninside: {8: lost.csv}\n", "lost.csv"),
        ("", "topology is missing"),
    ],
)
def test_wrong_files_are_refused_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)

    with pytest.raises(RotaError, match=message) as caught:
        read_network_file(path, ["n1", "n2"])

    assert "\n" not in str(caught.value)
    assert str(path.parent) in str(caught.value)


def test_a_cluster_beyond_the_network_is_refused(tmp_path: Path) -> None:
    network = str(written(tmp_path, TWO + "nodes: [n1, n2]\n"))

    with pytest.raises(RotaError, match="node 'n3' of the cluster is not in the network"):
        ends(tmp_path, network, "gpu=8/2")


def test_an_unknown_option_names_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(RotaError, match="unknown option 'betwen=crux'; did you mean 'between'"):
        network_from_spec(f"{written(tmp_path, TWO)}:betwen=crux", ["n1", "n2"])


def test_jobs_that_send_nothing_are_noted(tmp_path: Path) -> None:
    trace = written(tmp_path, "id,submit_s,work,gpus\na,0,10,2\nb,0,10,1\n", "jobs.csv")
    network = str(written(tmp_path, TWO))
    scenario = Scenario(policies=("fifo",), cluster="gpu=4/2", trace=str(trace), network=network, profiles="none")

    texts = [note.text for note in scenario_notes(load(scenario)) if note.code == "network"]

    assert len(texts) == 1
    assert "1 of 1 jobs of several devices send nothing" in texts[0]
