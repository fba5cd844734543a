"""Input that no planner can use is one line that names the thing and the way out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from planner.planning import machines, operator, problem_of
from rota.core.errors import RotaError
from rota.planner.description.devices import DeviceLink, fully_connected
from rota.planner.description.operators import CPU, GraphOperator
from rota.planner.description.read import read_problem
from rota.planner.options import PlannerOptions
from rota.planner.plan import PlanObjective
from rota.planner.pytorch import graph as model
from rota.planner.pytorch import load
from rota.planner.registry import run_planner


def read_text(folder: Path, text: str) -> None:
    path = folder / "graph.json"
    path.write_text(text, encoding="utf-8")
    read_problem(path)


def graph(device: dict[str, Any] | None = None, **changed: Any) -> str:
    operators = [{"name": "a", "time_ms": {"gpu": 1.0}}, {"name": "b", "time_ms": {"gpu": 1.0}} | changed]
    return json.dumps({"operators": operators, "devices": [{"type": "gpu"} | (device or {})]})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(graph(weight_bytes=10**400), "weight_bytes must be a number of at most", id="long integer"),
        pytest.param(graph(time_ms={"gpu": 1e308}), "gpu must be a number of at most", id="long time"),
        pytest.param(graph(time_ms={"gpu": 1e17}), "time on gpu is 1e[+]17 ms", id="time"),
        pytest.param(graph(inputs=[{"a": 1}]), "unknown input {'a': 1}", id="object as input"),
        pytest.param(graph(inputs=[["a"]]), "unknown input", id="list as input"),
        pytest.param(graph({"count": 10**9}), "1000000000 devices; a plan takes at most 4096", id="many devices"),
        pytest.param("[" * 100_000, "nested too deeply", id="nested"),
        pytest.param('{"nodes": ' + "9" * 5000 + "}", "too many digits", id="digits"),
    ],
)
def test_unusable_file_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(RotaError, match=told):
        read_text(tmp_path, text)


def test_too_many_linked_devices_are_told() -> None:
    with pytest.raises(RotaError, match="100000 devices; a plan takes at most 1024"):
        fully_connected("gpu", 100_000)


def test_link_of_a_device_to_itself_is_told() -> None:
    with pytest.raises(RotaError, match="link from device 'x' to itself"):
        DeviceLink(source="x", target="x", bytes_per_ms=1.0)


@pytest.mark.parametrize("planner", ["pipedream", "dapple"])
def test_operator_that_no_accelerator_runs_is_named(planner: str) -> None:
    operators = [GraphOperator(name="lookup", time_ms={CPU: 2.0}, transfer_ms=0.0), operator("b")]
    problem = problem_of(operators, [(0, 1)], machines(2, 1))

    with pytest.raises(RotaError, match=f"{planner} places all operators on accelerator .* 'lookup' cannot run there"):
        run_planner(planner, problem, PlannerOptions())


def test_operators_without_time_are_planned_by_dapple() -> None:
    operators = [GraphOperator(name=name, time_ms={"gpu": 0.0}) for name in "ab"]

    plan = run_planner("dapple", problem_of(operators, [(0, 1)], fully_connected("gpu", 2)), PlannerOptions())

    assert plan.value_ms == 0.0
    assert "speed-up over one device 1.00" in plan.notes[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["max-load", "linear", "pesto", "baechi"])
def test_devices_beyond_the_number_of_operators_cost_nothing(name: str) -> None:
    problem = problem_of([operator("a"), operator("b")], [(0, 1)], machines(2000, 2000))

    assert run_planner(name, problem, PlannerOptions(time_limit_s=1.0)).seconds < 5


def stand_in_torch() -> SimpleNamespace:
    """As much of PyTorch as is used before a model is traced, on a machine without a GPU."""
    return SimpleNamespace(nn=SimpleNamespace(Module=Path), cuda=SimpleNamespace(is_available=lambda: False))


def test_function_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "require_torch", stand_in_torch)
    script = tmp_path / "failing.py"
    script.write_text("def model():\n    raise OSError('no weights')\n", encoding="utf-8")

    with pytest.raises(RotaError, match=r"failing.py:model\(\) failed: OSError: no weights"):
        load.load_model(f"{script}:model")


def test_cuda_without_a_gpu_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "require_torch", stand_in_torch)

    with pytest.raises(RotaError, match="--type cuda measures on a GPU and PyTorch finds none"):
        model.model_graph(None, (), model.ModelProfiling(device_types=("cuda",)), "m")


def test_spotlight_without_pytorch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)

    with pytest.raises(RotaError, match="planner 'spotlight' needs PyTorch"):
        run_planner("spotlight", problem_of([operator("a")], [], machines(1)), PlannerOptions())


@pytest.mark.parametrize(
    ("planner", "objective", "told"),
    [
        ("max-load", PlanObjective.LATENCY, "'max-load' does not make latency small but throughput; .* take pesto"),
        ("pesto", PlanObjective.THROUGHPUT, "'pesto' does not make throughput small but latency; .* take max-load"),
    ],
)
def test_planner_of_another_objective_is_told(planner: str, objective: PlanObjective, told: str) -> None:
    problem = problem_of([operator("a")], [], machines(1))

    with pytest.raises(RotaError, match=told):
        run_planner(planner, problem, PlannerOptions(objective=objective))
    assert run_planner(planner, problem, PlannerOptions()).objective is not objective
