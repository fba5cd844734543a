"""Profile files: both forms, pairs, devices on several nodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builders import job, node, on
from rota.core.errors import RotaError
from rota.core.model.job import DeviceType
from rota.core.model.placement import packed
from rota.perf.profiles.profile_files import read_profiles, write_profiles
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.model import SpeedModel

V100 = DeviceType("v100")
GAVEL = {
    "v100": {
        "('a', 2)": {"null": 4.0, "('b', 2)": [3.0, 1.0]},
        "('b', 2)": {"null": 2.0, "('a', 2)": [1.0, 3.0]},
    },
    "v100_unconsolidated": {"('a', 2)": {"null": 3.5}, "('b', 2)": {"null": 1.5}},
}


@pytest.fixture
def profiles(tmp_path: Path) -> Profiles:
    path = tmp_path / "speeds.json"
    path.write_text(json.dumps(GAVEL))
    return read_profiles(path)


def test_pairs_are_read_from_gavels_form(profiles: Profiles) -> None:
    assert profiles.beside(V100, "a", "b", 2) == 3.0
    assert profiles.beside(V100, "b", "a", 2) == 1.0
    assert profiles.beside(V100, "a", "a", 2) is None


def test_devices_on_two_nodes_run_at_their_own_speed_when_asked(profiles: Profiles) -> None:
    nodes = [node("n1", 1, device_type=V100), node("n2", 1, device_type=V100)]
    far = on("n1", 1) + on("n2", 1)
    asked = job("j", gpus=1, workers=2, model="a")

    assert SpeedModel(profiles=profiles).rate(asked, far, nodes) == 4.0
    assert SpeedModel(profiles=profiles, scattered=True).rate(asked, far, nodes) == 3.5


def test_packed_job_runs_at_the_speed_of_its_pair(profiles: Profiles) -> None:
    nodes = [node("n1", 2, device_type=V100)]
    one, other = job("i", gpus=2, model="a"), job("j", gpus=2, model="b")

    assert SpeedModel(profiles=profiles).rate(one, packed(on("n1", 2), 500), nodes, mates=[(other, 1.0)]) == 3.0


def test_own_form_says_the_same(profiles: Profiles, tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    write_profiles(profiles, path)

    again = read_profiles(path)

    assert again.steps_per_s == profiles.steps_per_s
    assert again.scattered == profiles.scattered
    assert again.pairs == profiles.pairs


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"rota_profiles": 2}, "rota_profiles is 2; this Rota reads 1"),
        ({"rota_profiles": 1, "speeds": [{"type": "v100"}]}, "entry 1 of speeds has no 'model'"),
        (
            {"rota_profiles": 1, "speeds": [{"type": "t", "model": "m", "devices": 1, "steps_per_s": -1}]},
            "entry 1 of speeds is wrong: a speed is -1",
        ),
        (
            {"rota_profiles": 1, "speeds": [{"type": "t", "model": "m", "devices": 1, "steps_per_s": "3"}]},
            "entry 1 of speeds is wrong: a speed is '3'; it must be a number of 0 or more",
        ),
        ({"rota_profiles": 1, "pairs": [7]}, "entry 1 of pairs is wrong"),
    ],
)
def test_wrong_own_table_names_the_entry(tmp_path: Path, table: object, message: str) -> None:
    path = tmp_path / "own.json"
    path.write_text(json.dumps(table))

    with pytest.raises(RotaError, match=message):
        read_profiles(path)
