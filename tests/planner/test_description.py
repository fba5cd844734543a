from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.planning import machines, operator, problem_of, published
from rota.core.errors import RotaError
from rota.planner.description.devices import DeviceGraph, DeviceLink, GraphDevice, fully_connected
from rota.planner.description.profile_text import parse_profile, read_profile
from rota.planner.description.read import read_problem
from rota.planner.description.rota_graph import as_rota_graph, rota_problem
from rota.planner.options import PlannerOptions
from rota.planner.registry import run_planner


def node(number: int, **changed: Any) -> dict[str, Any]:
    return {
        "id": number,
        "supportedOnFpga": True,
        "cpuLatency": 10.0,
        "fpgaLatency": 1.0,
        "isBackwardNode": False,
        "size": 5.0,
    } | changed


def published_file(folder: Path, **changed: Any) -> Path:
    value = {
        "maxSizePerFPGA": 100.0,
        "maxFPGAs": 2,
        "maxCPUs": 1,
        "nodes": [node(7), node(9)],
        "edges": [{"sourceId": 7, "destId": 9, "cost": 0.5}],
    } | changed
    path = folder / "graph.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def edge(source: int, target: int, cost: float = 0.5) -> dict[str, Any]:
    return {"sourceId": source, "destId": target, "cost": cost}


def test_published_graph_is_read(tmp_path: Path) -> None:
    problem = read_problem(published_file(tmp_path))

    first = problem.graph.operators[0]
    assert (first.time_ms, first.transfer_ms, first.weight_bytes) == ({"cpu": 10.0, "accelerator": 1.0}, 0.5, 5)
    assert [device.name for device in problem.devices.devices] == ["accelerator-1", "accelerator-2", "cpu-1"]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        pytest.param({"edges": [edge(7, 9), edge(9, 7)]}, "form a cycle", id="cycle"),
        pytest.param({"nodes": [node(7, fpgaLatency=-1), node(9)]}, "fpgaLatency is -1", id="negative time"),
        pytest.param({"nodes": [node(7, latency=1), node(9)]}, "unknown field 'latency'", id="unknown field"),
        pytest.param({"nodes": [node(7), node(7)]}, "id 7 is there twice", id="repeated"),
        pytest.param({"edges": [edge(7, 8)]}, "destId 8 is no node's id", id="no such node"),
        pytest.param({"nodes": [node(7, fpgaLatency="1"), node(9)]}, "must be a number", id="text"),
        pytest.param({"nodes": [], "edges": []}, "no operators", id="empty"),
        pytest.param({"maxFPGAs": 1.5}, "maxFPGAs is 1.5", id="half a device"),
        pytest.param({"maxFPGAs": 0, "maxCPUs": 0}, "no devices", id="no devices"),
        pytest.param(
            {"nodes": [node(7), node(9, id=8)], "edges": [edge(7, 8), edge(7, 8, 0.7)]}, "differs", id="costs"
        ),
        pytest.param({"nodes": {}}, "nodes must be a list", id="no list"),
    ],
)
def test_bad_graph_is_one_line(tmp_path: Path, changed: dict[str, Any], told: str) -> None:
    with pytest.raises(RotaError, match=told) as failure:
        read_problem(published_file(tmp_path, **changed))

    assert "\n" not in str(failure.value)


def test_parts_of_a_unit_of_memory_count(tmp_path: Path) -> None:
    nodes = [node(7, size=0.6), node(9, size=0.6)]

    def devices_of(size: float) -> set[str]:
        problem = read_problem(published_file(tmp_path, maxCPUs=0, maxFPGAs=2, maxSizePerFPGA=size, nodes=nodes))
        stages = run_planner("max-load", problem, PlannerOptions()).stages
        assert sum(stage.memory_bytes for stage in stages) == pytest.approx(1.2)
        return {stage.devices[0] for stage in stages if stage.operators}

    assert len(devices_of(0.6)) == 2
    with pytest.raises(RotaError, match="never fits"):
        devices_of(0.59)


@pytest.mark.parametrize("size", [4.0, 9.0])
def test_memory_that_never_fits_is_one_line_for_planners_that_do_not_swap(tmp_path: Path, size: float) -> None:
    nodes = [node(7, colorClass=1), node(9, colorClass=1)]
    problem = read_problem(published_file(tmp_path, maxCPUs=0, maxSizePerFPGA=size, nodes=nodes))

    for planner in ("max-load", "linear", "pesto", "baechi", "pipedream"):
        with pytest.raises(RotaError, match="never fits"):
            run_planner(planner, problem, PlannerOptions())


def test_what_is_no_graph_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text("[1]", encoding="utf-8")
    with pytest.raises(RotaError, match="not a graph of operators"):
        read_problem(path)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(RotaError, match="not JSON, line 1"):
        read_problem(path)
    with pytest.raises(RotaError, match="No such file"):
        read_problem(tmp_path / "none.json")


def test_own_form_is_read_as_it_was_written() -> None:
    graph = problem_of(
        [operator("a", colocation="x", transfer_ms=None, output_bytes=8), operator("b", is_backward=True)],
        [(0, 1)],
        machines(2, 1, memory_bytes=50),
    )

    again = rota_problem(json.loads(json.dumps(as_rota_graph(graph))), "again")

    assert again == graph


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        pytest.param({"inputs": ["c"]}, "unknown input 'c'", id="input"),
        pytest.param({"time_ms": 3}, "times by device type", id="times"),
        pytest.param({"time_ms": {"v100": -3}}, "v100 is -3", id="negative"),
        pytest.param({"time_ms": {"k80": 1}}, "runs on k80 only", id="no such device"),
        pytest.param({"memory": 3}, "unknown field 'memory'", id="field"),
        pytest.param({"name": "a"}, "'a' is there twice", id="twice"),
    ],
)
def test_bad_own_form_is_one_line(entry: dict[str, Any], told: str) -> None:
    operators = [{"name": "a", "time_ms": {"v100": 1}}, {"name": "b", "time_ms": {"v100": 1}} | entry]

    with pytest.raises(RotaError, match=told):
        rota_problem({"operators": operators, "devices": [{"type": "v100", "count": 2}]}, "file")


def test_missing_link_is_named() -> None:
    devices = DeviceGraph(
        devices=tuple(GraphDevice(name=name, type="v100") for name in "abc"),
        links=(DeviceLink(source="a", target="b", bytes_per_ms=1.0),),
    )

    assert devices.link(1, 0).time_ms(5) == 5.0
    with pytest.raises(RotaError, match="no link between 'a' and 'c'"):
        devices.link(0, 2)
    with pytest.raises(RotaError, match="unknown device 'd'"):
        DeviceGraph(devices=devices.devices, links=(DeviceLink(source="a", target="d", bytes_per_ms=1.0),))


def test_pairs_on_different_nodes_share_a_slower_medium() -> None:
    devices = fully_connected("v100", 4, per_node=2)

    near, far, other = devices.link(0, 1), devices.link(0, 2), devices.link(1, 3)
    assert near.bytes_per_ms > far.bytes_per_ms
    assert far.medium == other.medium is not None


PROFILE = """\
node1 -- Input -- forward_compute_time=1.0, backward_compute_time=2.0, activation_size=8.0, parameter_size=4.0
node2 -- Linear(1, 2) -- forward_compute_time=3, backward_compute_time=4, activation_size=[1; 2], parameter_size=0
\tnode1 -- node2
"""


def test_profile_is_read() -> None:
    profile = parse_profile(PROFILE, "text")

    assert profile.total_ms == 10.0
    assert profile.layers[1].activation_bytes == 3.0
    assert profile.edges == ((0, 1),)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        pytest.param("node1 -- node9", "unknown layer 'node9'", id="edge"),
        pytest.param("what", "neither a layer nor an edge", id="line"),
        pytest.param("node2 -- node1", "form a cycle", id="cycle"),
        pytest.param("node3 -- X -- forward_compute_time=-1", "forward_compute_time is -1", id="negative"),
        pytest.param("node3 -- X -- forward_compute_time=1", "backward_compute_time is missing", id="missing"),
        pytest.param("node3 -- X -- time=1", "unknown field 'time'", id="field"),
    ],
)
def test_bad_profile_is_one_line(line: str, told: str) -> None:
    with pytest.raises(RotaError, match=told):
        parse_profile(f"{PROFILE}{line}\n", "text")


def test_inputs_cost_no_transfer_and_an_output_is_sent_once_however_many_read_it() -> None:
    fields = "forward_compute_time=1, backward_compute_time=2, activation_size={}, parameter_size=0"
    sizes = {"a": "[600; 4]", "b": "[50; 50]", "c": "[70; 70]", "d": "8"}
    lines = [f"{name} -- {'Input' if name == 'a' else 'Cell'} -- {fields.format(size)}" for name, size in sizes.items()]
    edges = ["a -- b", "a -- d", "b -- c", "b -- d", "c -- d"]

    profile = parse_profile("\n".join([*lines, *edges]), "text")

    # b has two readers and two equal sizes: one output. c has one reader: two outputs.
    assert [layer.activation_bytes for layer in profile.layers] == [0.0, 50.0, 140.0, 8.0]


def test_published_profile_of_vgg() -> None:
    profile = read_profile(published("dapple", "vgg-19-pbs-32.txt"))

    assert len(profile.layers) == 26
    assert profile.layers[0].name == "node1 Input"
