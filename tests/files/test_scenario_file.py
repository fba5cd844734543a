"""Scenario files: the options of `rota sim` by the same names, checked, with paths relative to the file."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from rota.cli.study.sim_options import OUTPUTS, SimOptions
from rota.core.errors import RotaError
from rota.core.model.job import Level
from rota.files.scenario_file import ScenarioFile, merged, read_scenario_file, scenario_from
from rota.perf.speed.model import Costs, SpeedModel
from rota.scenario import ClusterChange, FaultRates, Scenario

TEXT = """
trace: jobs.csv
cluster: lab.yaml
change: {2h: after.yaml}
policy: [fifo, "./mine.py:fn:limit=3"]
neighbours: {device: 0.8, gaps: 1, spilled: 0.2}
spread: rack=0.9,network=0.1
restart_cost: 1m
mttf: 10h
seed: 4
"""


def read(folder: Path, text: str) -> Scenario:
    path = folder / "scenario.yaml"
    path.write_text(text)
    return scenario_from(read_scenario_file(path), path)


def test_file_becomes_a_scenario(tmp_path: Path) -> None:
    assert read(tmp_path, TEXT) == Scenario(
        trace=str(tmp_path / "jobs.csv"),
        cluster=str(tmp_path / "lab.yaml"),
        changes=(ClusterChange(at_s=7200.0, cluster=str(tmp_path / "after.yaml")),),
        policies=("fifo", f"{tmp_path}/mine.py:fn:limit=3"),
        speed=SpeedModel(device_neighbour=0.8, gaps=1.0, spilled=0.2, spread={Level.RACK: 0.9}, network=0.1),
        costs=Costs(restart_s=60.0),
        fault_rates=FaultRates(mean_time_to_failure_s=36000.0),
        seed=4,
    )


def test_empty_file_is_the_default(tmp_path: Path) -> None:
    assert read(tmp_path, "") == Scenario()


def test_names_that_are_no_files_stay(tmp_path: Path) -> None:
    scenario = read(tmp_path, "cluster: gpu=4/4\nprofiles: catalogue\nplacement: spread\nformat: philly\n")

    assert (scenario.cluster, scenario.profiles) == ("gpu=4/4", "catalogue")
    assert (scenario.placement, scenario.format) == ("spread", "philly")


def test_words_take_the_place_of_factors(tmp_path: Path) -> None:
    assert read(tmp_path, "spread: profile\nneighbours: stages\n").speed == SpeedModel(scattered=True, interleaved=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("polcy: fifo\n", "scenario.yaml: unknown field polcy; did you mean 'policy'?"),
        ("neighbours: {gap: 1}\n", "scenario.yaml: neighbours: unknown name 'gap'; did you mean 'gaps'?"),
        ("neighbours: {gaps: much}\n", "scenario.yaml: neighbours: gaps is 'much'; it must be a number"),
        ("spread: rack=0\n", "scenario.yaml: spread: rack is 0; it must be above 0"),
        ("spread: rack=nan\n", "scenario.yaml: spread: rack is nan; it must be above 0"),
        ("restart_cost: soon\n", "scenario.yaml: restart_cost: not a duration: 'soon'"),
        ("change: 5\n", "scenario.yaml: change: not a cluster change: 5; write it as TIME: FILE"),
        ("change: [after.yaml]\n", "scenario.yaml: change: not a cluster change: 'after.yaml'; write it as TIME=FILE"),
        ("change: {soon: after.yaml}\n", "scenario.yaml: change: soon=after.yaml: not a duration: 'soon'"),
        ("jobs: 0\n", "scenario.yaml: jobs is 0; it must be at least 1"),
        ("contention: 3\n", "scenario.yaml: contention is 3; it must be true or false"),
        ("[1, 2]\n", "scenario.yaml: the file is"),
        ("known_profiles: 1.5\n", "the fraction of the profiles that is known is 1.5"),
        ("mttf: 0\n", "mean time to failure is 0; it must be a number of seconds above 0"),
    ],
)
def test_mistake_is_named(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(RotaError) as caught:
        read(tmp_path, text)

    assert message in str(caught.value)


def test_options_win_over_the_file_factor_by_factor() -> None:
    file = {"seed": 1, "jobs": 5, "neighbours": {"device": 0.8, "gaps": 1.0}, "spread": "profile"}
    given = {"seed": 2, "neighbours": {"device": 0.5}, "spread": {"rack": 0.9}}

    assert merged(file, given) == {
        "seed": 2, "jobs": 5, "neighbours": {"device": 0.5, "gaps": 1.0}, "spread": {"rack": 0.9},
    }  # fmt: skip


def test_command_line_has_the_options_of_the_file_with_their_defaults() -> None:
    options = {field.name: field.default for field in dataclasses.fields(SimOptions) if field.name not in OUTPUTS}
    file = ScenarioFile()

    assert options.keys() == ScenarioFile.model_fields.keys()
    assert {name for name, default in options.items() if (default or None) != (getattr(file, name) or None)} == set()
