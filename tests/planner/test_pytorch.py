from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rota.core.errors import RotaError
from rota.planner.pytorch.costs import measured_ms
from rota.planner.pytorch.graph import ModelProfiling, model_graph
from rota.planner.pytorch.load import load_model

SCRIPT = """
import torch
from torch import nn

def model():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), (torch.zeros(2, 8),)

bare = nn.Linear(2, 2)
number = 3
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    path = tmp_path / "planned_model.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return path


@pytest.mark.slow
def test_model_becomes_a_graph_with_all_of_its_weights(script: Path) -> None:
    model, inputs = load_model(f"{script}:model")

    graph = model_graph(model, inputs, ModelProfiling(device_types=("cpu", "v100"), repeats=1), "model")

    assert sum(each.weight_bytes for each in graph.operators) == 4 * (8 * 16 + 16 + 16 * 4 + 4)
    assert len(graph.edges) == len(graph) - 1
    assert all(each.time_ms["v100"] > 0 for each in graph.operators)


@pytest.mark.slow
def test_training_doubles_the_operators_on_the_same_devices(script: Path) -> None:
    model, inputs = load_model(f"{script}:model")

    graph = model_graph(model, inputs, ModelProfiling(device_types=("v100",), training=True), "model")

    forward = [each for each in graph.operators if not each.is_backward]
    assert [each.colocation for each in graph.operators if each.is_backward] == [each.colocation for each in forward]


@pytest.mark.slow
def test_measuring_elsewhere_leaves_the_program_where_it_is() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    class Masked(torch.nn.Module):  # type: ignore[misc,name-defined,unused-ignore]  # torch is not typed here
        """Makes a tensor on a named device in its forward pass."""

        def forward(self, value: Any) -> Any:
            return value + torch.ones(8, device=value.device)

    inputs = (torch.zeros(2, 8),)
    program = torch.export.export(torch.nn.Sequential(torch.nn.Linear(8, 8), Masked()).eval(), inputs)

    elsewhere = measured_ms(program, inputs, 1, "meta")
    here = measured_ms(program, inputs, 1, "cpu")

    assert elsewhere.keys() == here.keys()
    assert {str(value.device) for value in program.state_dict.values()} == {"cpu"}


@pytest.mark.slow
def test_view_of_values_that_lie_otherwise_in_memory_is_a_copy() -> None:
    """As on a GPU, where attention leaves its result in another order than on the CPU on which the model was traced."""
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")

    class Flat(torch.nn.Module):  # type: ignore[misc]  # torch is not typed here
        def forward(self, values: Any) -> Any:
            return values.view(-1) + 1

    program = torch.export.export(Flat(), (torch.zeros(4, 3),))

    assert "view" in measured_ms(program, (torch.zeros(3, 4).t(),), 1, "cpu")


def test_what_is_no_model_is_told(script: Path) -> None:
    with pytest.raises(RotaError, match="gives no inputs"):
        load_model(f"{script}:bare")
    with pytest.raises(RotaError, match="is a int, not a torch"):
        load_model(f"{script}:number")
    with pytest.raises(RotaError, match="did you mean 'model'"):
        load_model(f"{script}:modle")


@pytest.mark.slow
def test_model_that_cannot_be_traced_gets_one_line_and_nothing_else(capfd: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    class Choosing(torch.nn.Module):  # type: ignore[misc, name-defined] # PyTorch is imported where it is there
        def forward(self, x: Any) -> Any:
            return x * 2 if x.sum() > 0 else x

    with pytest.raises(RotaError, match=r"^m: torch.export cannot trace the model: [^\n]*$"):
        model_graph(Choosing(), (torch.randn(3),), ModelProfiling(), "m")

    assert capfd.readouterr() == ("", "")


def test_settings_of_profiling_are_checked() -> None:
    with pytest.raises(RotaError, match="0 repeats"):
        ModelProfiling(repeats=0)
