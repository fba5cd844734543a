"""Inputs of `rota plan` with one or two values replaced, left out, repeated or turned around."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from rota.planner.registry import PLANNERS

VALUES: tuple[Any, ...] = (
    *(float("nan"), float("inf"), float("-inf"), -1, 0, 0.5, 1e-320, 1e15, 1e18, 1e19, 1e300, 10**30, 10**400, -0.0),
    *("", "x", "NaN", "1", "cpu", "\x1b[31m", "a\nb", "é" * 50, None, True, False, [], {}, [1], {"a": 1}, [[]]),
)
WORDS = ("nan", "inf", "-inf", "-1", "0", "0.5", "1e-320", "1e300", "1" + "0" * 30, "", "x", "cpu", "1,2", "=", "=/")
DEVICES = ("gpu=2", "gpu=4/2", "cpu=2", "gpu=0", "gpu=-1", "gpu=", "=2", "gpu=2/0", "gpu=2/3", "gpu=99999999", "x=2")
OPTIONS = ("--micro-batches", "--seed", "--time-limit", "--deadline", "--schedule", "--chunks", "--swap", "--devices")
NUMBERS = {"--micro-batches": "3", "--time-limit": "1", "--deadline": "20", "--chunks": "2", "--swap": "1"}
PARALLEL = {
    "--gpus": "8",
    "--hidden": "64",
    "--layers": "4",
    "--heads": "4",
    "--seq": "64",
    "--vocab": "100",
    "--batch": "16",
    "--per-node": "4",
    "--gpu": "a100",
    "--tensor": "2",
    "--pipeline": "2",
    "--data": "2",
    "--micro-batch": "2",
    "--interleave": "1",
    "--network-gb-s": "10",
    "--planner": "ptd-p",
}
MEASURED = (
    "# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,"
    "tensor parallelism,data parallelism,pipeline parallelism,iteration time (ms),recompute,vocab,per node\n"
    "8,16,2,1024,16,24,1024,2,2,2,900,none,51200,8\n8,32,2,1024,16,24,1024,2,2,2,1700,full,51200,8\n"
)


def own_graph() -> dict[str, Any]:
    """A small problem in Rota's JSON, with every field in use."""
    operators = [
        {
            "name": f"o{number}",
            "inputs": [f"o{number - 1}"] if number else [],
            "time_ms": {"gpu": 2.0, "cpu": 9.0, "cpu@2": 5.0},
            "output_bytes": 10**6,
            "transfer_ms": 0.5,
            "weight_bytes": 10**6,
            "resident_bytes": 10**5,
            "colocation": f"c{number // 2}",
            "backward": number > 2,
            "backward_share": 0.5,
            "occupancy": 0.6,
        }
        for number in range(5)
    ]
    levels = [{"speed": 1.0, "watts": 9.0}, {"speed": 0.5, "watts": 3.0}]
    return {
        "operators": operators,
        "devices": [
            {"name": "g", "type": "gpu", "count": 2, "memory_bytes": 10**7, "levels": levels, "sending_watts": 1.0},
            {"name": "c", "type": "cpu"},
        ],
        "links": [
            {"source": "g-0", "target": "g-1", "gb_per_s": 10.0, "latency_ms": 0.1, "medium": "bus"},
            {"source": "g-0", "target": "c", "gb_per_s": 1.0},
            {"source": "g-1", "target": "c", "gb_per_s": 1.0},
        ],
    }


def published_graph() -> dict[str, Any]:
    """A small problem in the JSON of dnn-partitioning."""
    nodes = [
        {
            "id": number,
            "name": f"n{number}",
            "supportedOnFpga": 1,
            "cpuLatency": 5.0,
            "fpgaLatency": 1.0,
            "isBackwardNode": number > 2,
            "colorClass": number % 3,
            "size": 100.0,
        }
        for number in range(6)
    ]
    edges = [{"sourceId": n, "destId": n + 1, "cost": 0.5, "size": 10.0} for n in range(5)]
    return {"maxSizePerFPGA": 500.0, "maxFPGAs": 2, "maxCPUs": 1, "nodes": nodes, "edges": edges}


def profile_text() -> str:
    """A small profile in PipeDream's form."""
    layers = [
        f"node{n} -- Conv(1, 2) -- forward_compute_time=1.5, backward_compute_time=3.0,"
        f" activation_size={'[5.0; 5.0]' if n == 1 else '100.0'}, parameter_size=1000.0"
        for n in range(4)
    ]
    return "\n".join([*layers, *(f"\tnode{n} -- node{n + 1}" for n in range(3))]) + "\n"


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container and key below a JSON value."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(entries):
        yield value, key
        yield from _places(inner)


def spoiled(rng: Random, value: Any) -> Any:
    """A copy of a JSON value with one or two mistakes."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 2))):
        container, key = rng.choice(list(_places(value)))
        match rng.randrange(8):
            case 0:
                del container[key]
            case 1 if isinstance(container, list):
                container.append(copy.deepcopy(container[key]))
            case 2 if isinstance(container, dict):
                container[rng.choice(("", "naem", "x"))] = rng.choice(VALUES)
            case 3:
                container[key] = copy.deepcopy(rng.choice(list(_places(value)))[0])
                try:
                    json.dumps(value)
                except ValueError:  # it holds itself now
                    container[key] = None
            case _:
                container[key] = rng.choice(VALUES)
    return value


def stretched(rng: Random, value: Any) -> Any:
    """A copy of a JSON value with some numbers far from the others, each of them allowed."""
    value = copy.deepcopy(value)
    numbers = [
        (container, key)
        for container, key in _places(value)
        if type(container[key]) in (int, float) and key not in ("id", "sourceId", "destId")
    ]
    for container, key in rng.sample(numbers, rng.randrange(1, 9)):
        factor = rng.choice((0, 1e-300, 1e-12, 1e-3, 0.3, 1, 3, 1000, 10**9, 10**11))
        number = container[key] * factor
        container[key] = int(number) if isinstance(container[key], int) else number
    return value


def spoiled_text(rng: Random, text: str) -> str:
    """A text with some of its words or lines replaced, left out or repeated."""
    lines = text.splitlines()
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(lines))
        match rng.randrange(5):
            case 0:
                lines.pop(at)
            case 1:
                lines.insert(rng.randrange(len(lines)), lines[at])
            case 2:
                lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
            case _:
                for mark in rng.sample(("=", ",", " "), 3):
                    head, found, tail = lines[at].partition(mark)
                    if found:
                        rest = tail.split(",", 1)[1:] if rng.random() < 0.7 else []
                        lines[at] = f"{head}{mark}{rng.choice(WORDS)}" + "".join(f",{each}" for each in rest)
                        break
        lines = lines or [""]
    return "\n".join(lines) + "\n"


def placing(rng: Random, folder: Path) -> list[str]:
    """The arguments of one `rota plan place` or `compare` with hostile input, written to the folder."""
    names = [entry.name for entry in PLANNERS if entry.places and entry.needs is None]
    kind = rng.randrange(3)
    file = folder / ("profile.txt" if kind == 2 else "graph.json")
    if kind == 2:
        file.write_text(spoiled_text(rng, profile_text()), encoding="utf-8")
    else:
        value = published_graph() if kind else own_graph()
        value = spoiled(rng, value) if rng.random() < 0.5 else stretched(rng, value)
        file.write_text(json.dumps(value), encoding="utf-8")
    given = ["plan", "place", str(file), "--planner", rng.choice(names)]
    if kind == 2 or rng.random() < 0.2:
        given += ["--devices", rng.choice(DEVICES) if rng.random() < 0.3 else "gpu=3"]
    if rng.random() < 0.5:
        name = rng.choice(OPTIONS)
        hostile = rng.choice(DEVICES) if name == "--devices" else rng.choice(WORDS)
        given += [name, NUMBERS.get(name, "1") if rng.random() < 0.3 else hostile]
    if rng.random() < 0.1:
        given += [rng.choice(("--recompute", "--objective=latency", "--objective=x", "--schedule=interleaved"))]
    limit = [] if "--time-limit" in given else ["--time-limit", "1"]
    return [*given, *limit, "-o", rng.choice(("json", "csv", "table"))]


def parallel(rng: Random, folder: Path) -> list[str]:
    """The arguments of one `rota plan parallel` with hostile options."""
    options = dict(PARALLEL)
    for name in rng.sample(sorted(options), rng.choice((1, 1, 2, 3))):
        if rng.random() < 0.3:
            del options[name]
        else:
            options[name] = rng.choice((*WORDS, "3", "7", "alpa-like", "galvatron-like", "v100", "100000000"))
    given = ["plan", "parallel"]
    for name, value in options.items():
        given += [name, value]
    if rng.random() < 0.2:
        file = folder / "rows.csv"
        file.write_text(spoiled_text(rng, MEASURED), encoding="utf-8")
        given += ["--measured", str(file)]
    if rng.random() < 0.2:
        given += [rng.choice(("--recompute=search", "--recompute=x", "--zero=weights", "--model=gpt-39b", "--model=x"))]
    return [*given, "-o", rng.choice(("json", "table"))]
