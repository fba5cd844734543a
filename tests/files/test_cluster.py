from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import DeviceType, NodeId
from rota.files import read_cluster

GI = 2**30


def node(name: str, device_type: str = "gpu", devices: int = 8, rack: str = "rack", domain: str = "domain") -> Node:
    return Node(id=NodeId(name), device_type=DeviceType(device_type), devices=devices, rack=rack, domain=domain)


def written(folder: Path, text: str, name: str = "cluster.yaml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def refusal_of(spec: str) -> str:
    with pytest.raises(RotaError) as refusal:
        read_cluster(spec)
    return str(refusal.value)


@pytest.mark.parametrize(
    ("spec", "pools"),
    [
        ("gpu=440/8", [("gpu", 440, 8)]),
        ("v100=8/4,p100=16/4,k80=24/4", [("v100", 8, 4), ("p100", 16, 4), ("k80", 24, 4)]),
        (" v100 = 8 / 4 , k80=6/4 ", [("v100", 8, 4), ("k80", 6, 4)]),
        ("a100-80g=4/8", [("a100-80g", 4, 8)]),
    ],
)
def test_short_form(spec: str, pools: list[tuple[str, int, int]]) -> None:
    assert read_cluster(spec) == Cluster.uniform(*pools)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("gpu=8", "cluster 'gpu=8': 'gpu=8' is not TYPE=GPUS/PER_NODE with numbers above 0"),
        ("a=8/4,b=0/4", "cluster 'a=8/4,b=0/4': 'b=0/4' is not TYPE=GPUS/PER_NODE with numbers above 0"),
        ("a=8/4,", "cluster 'a=8/4,': '' is not TYPE=GPUS/PER_NODE with numbers above 0"),
        ("=8/4", "cluster '=8/4': '=8/4' is not TYPE=GPUS/PER_NODE with numbers above 0"),
        ("a=8/-4", "cluster 'a=8/-4': 'a=8/-4' is not TYPE=GPUS/PER_NODE with numbers above 0"),
    ],
)
def test_broken_short_form(spec: str, message: str) -> None:
    assert refusal_of(spec) == f"{message}; write for example v100=8/4"


def test_neither_file_nor_short_form() -> None:
    assert refusal_of("v100") == (
        "cluster 'v100' is neither a file nor of the form TYPE=GPUS/PER_NODE,...; write for example v100=8/4,k80=24/4"
    )


def test_huge_short_form() -> None:
    assert refusal_of("a=999999999/1") == "cluster 'a=999999999/1' has 999999999 nodes; the most is 1000000"


def test_missing_file() -> None:
    assert refusal_of("nowhere.yaml") == (
        "nowhere.yaml: No such file or directory; check the name and whether you may read it"
    )


def test_node_with_everything(tmp_path: Path) -> None:
    spec = written(
        tmp_path,
        "nodes:\n"
        "  - {name: a1, type: v100, gpus: 8, sockets: [4, 4], gpu_memory: 32Gi, cpus: 64, memory: 512Gi,\n"
        "     network: 100Gbps, disk: 16Gbps, rack: r1, domain: d1}\n",
    )

    assert read_cluster(spec).nodes == (
        Node(
            id=NodeId("a1"),
            device_type=DeviceType("v100"),
            devices=8,
            sockets=(4, 4),
            device_memory_bytes=32 * GI,
            cpu_milli=64_000,
            memory_bytes=512 * GI,
            network_bps=100 * 10**9,
            disk_bps=16 * 10**9,
            rack="r1",
            domain="d1",
        ),
    )


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param('[{name: "b[1-3]", gpus: 8}]', [node("b1"), node("b2"), node("b3")], id="range"),
        pytest.param('[{name: "b[09-10]", gpus: 8}]', [node("b09"), node("b10")], id="leading zeros"),
        pytest.param('[{name: "b[1-2,7]", gpus: 8}]', [node("b1"), node("b2"), node("b7")], id="list"),
        pytest.param(
            '[{name: "r[1-2]n[1-2]", gpus: 8}]',
            [node("r1n1"), node("r1n2"), node("r2n1"), node("r2n2")],
            id="two ranges",
        ),
        pytest.param("[{count: 2, type: p100, gpus: 4}]", [node("n1", "p100", 4), node("n2", "p100", 4)], id="count"),
        pytest.param("[{gpus: 1}, {gpus: 2}]", [node("n1", devices=1), node("n2", devices=2)], id="unnamed"),
        pytest.param(
            "[{name: n1, gpus: 8}, {count: 2, gpus: 4}]",
            [node("n1"), node("n2", devices=4), node("n3", devices=4)],
            id="numbers avoid names",
        ),
        pytest.param("[{name: 7, rack: 1, gpus: 8}]", [node("7", rack="1")], id="numbers as names"),
        pytest.param("[{gpus: 8, domain: d}]", [node("n1", rack="d", domain="d")], id="domain alone"),
        pytest.param("[{gpus: 0, cpus: 0.5}]", [Node(id=NodeId("n1"), cpu_milli=500)], id="no devices"),
    ],
)
def test_entries_make_nodes(tmp_path: Path, nodes: str, expected: list[Node]) -> None:
    assert read_cluster(written(tmp_path, f"nodes: {nodes}")) == Cluster(nodes=tuple(expected))


def test_racks_name_their_domain_once(tmp_path: Path) -> None:
    spec = written(tmp_path, "racks: {r1: east}\nnodes: [{gpus: 8, rack: r1}, {gpus: 8, rack: r2}]")

    assert read_cluster(spec).nodes == (node("n1", rack="r1", domain="east"), node("n2", rack="r2"))


def test_json_file_says_the_same(tmp_path: Path) -> None:
    spec = written(tmp_path, json.dumps({"nodes": [{"name": "b[1-2]", "gpus": 8}]}), "cluster.json")

    assert read_cluster(spec) == Cluster(nodes=(node("b1"), node("b2")))


BROKEN = [
    ("nodes: [{gpsu: 8}]", ": unknown field nodes[0].gpsu; did you mean 'gpus'? (and 1 more)"),
    ("nodes: [{gpus: 8}]\nteams: {}", ": unknown field teams; did you mean 'tenants'?"),
    ("nodes: [{gpus: 8}, {name: a}]", ": nodes[1].gpus is missing; add it"),
    ("nodes: []", ": nodes is []; it must not be empty"),
    ("nodes:", ": nodes is empty; it must be a list"),
    ("nodes: a", ": nodes is 'a'; it must be a list"),
    ("nodes: [a1]", ": nodes[0] is 'a1'; it must be a mapping of fields to values"),
    ("", ": the file is empty; it must be a mapping of fields to values"),
    ("just text", ": the file is 'just text'; it must be a mapping of fields to values"),
    ("nodes: [{gpus: eight}]", ": nodes[0].gpus is 'eight'; it must be a whole number"),
    ("nodes: [{gpus: 8.5}]", ": nodes[0].gpus is 8.5; it must be a whole number"),
    ("nodes: [{gpus: true}]", ": nodes[0].gpus is True; it must be a whole number"),
    ("nodes: [{gpus: -1}]", ": nodes[0].gpus is -1; it must be at least 0"),
    ("nodes: [{gpus: 8, count: 0}]", ": nodes[0].count is 0; it must be at least 1"),
    ("nodes: [{gpus: 8, type: ''}]", ": nodes[0].type is ''; it must not be empty"),
    ("nodes: [{gpus: 8, rack: [r]}]", ": nodes[0].rack is ['r']; it must be text"),
    (
        "nodes: [{gpus: 8, memory: lots}]",
        ": nodes[0].memory: not an amount of memory: 'lots'; write it like 40Gi, 512GB or a number of bytes",
    ),
    ("nodes: [{gpus: 8, sockets: [4, 2]}]", ": node n1: sockets hold 6 devices, the node has 8"),
    ("nodes: [{gpus: 8, sockets: 4}]", ": nodes[0].sockets is 4; it must be a list"),
    (
        "nodes: [{name: a, count: 4, gpus: 8}]",
        ": nodes[0] has a name ('a') and a count (4); write the name as a range, like 'a[1-4]'",
    ),
    ("nodes: [{name: 'a[4-1]', gpus: 8}]", ": nodes[0].name is 'a[4-1]'; a range is written like [1-16]"),
    ("nodes: [{name: 'a[x]', gpus: 8}]", ": nodes[0].name is 'a[x]'; a range is written like [1-16]"),
    ("nodes: [{name: 'a[1', gpus: 8}]", ": nodes[0].name is 'a[1'; its brackets do not match"),
    (
        "nodes: [{name: 'a[1-9999][1-9999]', gpus: 8}]",
        ": nodes[0].name is 'a[1-9999][1-9999]', which makes 99980001 nodes; the most is 1000000",
    ),
    ("nodes: [{count: 2000000, gpus: 8}]", ": the cluster has 2000000 nodes; the most is 1000000"),
    ("nodes: [{name: a, gpus: 8}, {name: a, gpus: 8}]", ": two nodes are named 'a'; names must differ"),
    (
        "racks: {r: east}\nnodes: [{gpus: 8, rack: r}, {gpus: 8, rack: r, domain: west}]",
        ": rack 'r' is in two domains: 'east' and 'west'",
    ),
    ("nodes:\n  - {gpus: 8, gpus: 4}", ":2: 'gpus' is given twice; keep one"),
    ("nodes:\n  - {gpus: 8", ":3: not YAML: did not find expected ',' or '}'"),
    (
        "nodes: !!python/object/apply:os.getcwd []",
        ":1: not YAML: could not determine a constructor for the tag 'tag:yaml.org,2002:python/object/apply:os.getcwd'",
    ),
]


@pytest.mark.parametrize(("text", "message"), BROKEN, ids=[text for text, _ in BROKEN])
def test_broken_file(tmp_path: Path, text: str, message: str) -> None:
    spec = written(tmp_path, text)

    assert refusal_of(spec) == f"{spec}{message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"nodes":\n [}', ":2: not JSON: expecting value"),
        ('{"nodes": [{"gpus": 1, "gpus": 2}]}', ": 'gpus' is given twice; keep one"),
        ("[" * 100_000, ": it is nested too deeply; at most 32 mappings and lists inside each other"),
    ],
    ids=["syntax", "key twice", "too deep"],
)
def test_broken_json(tmp_path: Path, text: str, message: str) -> None:
    spec = written(tmp_path, text, "cluster.json")

    assert refusal_of(spec) == f"{spec}{message}"


def test_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_bytes(b"nodes: \xff")

    assert refusal_of(str(path)) == f"{path}: not a text file; byte 7 is not UTF-8"


def test_short_form_loads_no_file_library() -> None:
    code = (
        "import sys; from rota.files import read_cluster; read_cluster('gpu=8/4'); "
        "print([name for name in ('pydantic', 'yaml') if name in sys.modules])"
    )

    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
