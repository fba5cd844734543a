"""`import rota`: experiments and simulations from Python, as scripts and notebooks write them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rota

SMALL: dict[str, Any] = {"policies": ["fifo", "srtf"], "traces": "gavel-like", "clusters": "gpu=8/4", "jobs": 15}


@pytest.mark.slow
def test_script_without_a_guard_begins_once_however_many_processes(tmp_path: Path) -> None:
    """A process that imported the script would begin the experiment again."""
    script = tmp_path / "script.py"
    script.write_text(
        f"import rota\nprint('begins')\nprint(rota.experiment(**{SMALL}, seeds=4, processes=2).rows.height)\n"
    )

    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["begins", "8"]


def test_definition_takes_fields_as_a_call_does(tmp_path: Path) -> None:
    first = rota.experiment(**SMALL, options={"restart_cost": "30s"}, warm_up="10%", out=tmp_path)

    again = rota.experiment(first.definition, seeds=2, loads=0.7, out=tmp_path)

    assert again.rows.height == 4
    assert again.definition.seeds == (0, 1)
    assert again.definition.loads == (0.7,)
    assert (again.definition.window, again.definition.options) == (first.definition.window, first.definition.options)
    assert rota.experiment(first.definition, out=tmp_path).rows["key"].to_list() == first.rows["key"].to_list()


def test_figure_over_the_load_is_of_one_workload_and_cluster(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        **SMALL,
        "clusters": ["gpu=8/4", "gpu=16/4"],
        "variants": {"free": {}, "slow": {"restart_cost": "60s"}},
    }
    found = rota.experiment(**given, loads=[0.5, 0.9], out=tmp_path)

    figure = found.plot("avg_jct_s", cluster="gpu=16/4", variant="slow")

    (line,) = [each for each in figure.data if each.name == "srtf"]
    assert list(line.x) == [0.5, 0.9]
    assert "gpu=16/4, slow" in figure.layout.title.text
    with pytest.raises(rota.RotaError, match="there is no cluster 'gpu=9/9'; known: gpu=8/4, gpu=16/4"):
        found.plot(cluster="gpu=9/9")


def test_workload_is_a_trace_like_any_other(tmp_path: Path) -> None:
    workload = rota.generate("gavel-like", jobs=20, seed=3, gpus=8)
    given: dict[str, Any] = {"policies": ["fifo", "srtf"], "clusters": "gpu=8/4", "traces": [workload], "out": tmp_path}

    found = rota.experiment(**given)

    direct = rota.simulate(workload, cluster="gpu=8/4", policy=["fifo", "srtf"])
    assert found.rows["avg_jct_s"].to_list() == pytest.approx(direct.rows["avg_jct_s"].to_list())
    (name,) = set(found.rows["trace"])
    assert Path(name).parent == tmp_path / "traces"
    assert rota.experiment(**given).rows["recorded"].to_list() == found.rows["recorded"].to_list(), "it is found again"


def test_mistakes_are_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(rota.RotaError, match="state at least one policy"):
        rota.simulate(rota.generate("gavel-like", jobs=3), cluster="gpu=8/4", policy=[])
    with pytest.raises(rota.RotaError, match="one policy at one load makes no figure"):
        rota.experiment(**{**SMALL, "policies": "fifo"}, out=tmp_path).plot()
