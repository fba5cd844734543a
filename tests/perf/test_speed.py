"""The speed model: every factor by itself, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from builders import cluster, job, node, on
from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.core.model.job import DeviceType, Elastic, Level
from rota.core.model.placement import Placement, has_devices_alone
from rota.perf.profiles.profile_files import read_profiles
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.model import Costs, SpeedModel, span
from rota.perf.speed.throttling import duty

V100, K80 = DeviceType("v100"), DeviceType("k80")
TREE = cluster(
    node("n1", 4, rack="r1", domain="d1"),
    node("n2", 4, rack="r1", domain="d1"),
    node("n3", 4, rack="r2", domain="d1"),
    node("n4", 4, rack="r3", domain="d2"),
)
MIXED = Cluster.uniform(("v100", 4, 4), ("k80", 4, 4))
SPEEDS = {(V100, "m", 1): 10.0, (K80, "m", 1): 2.0, (V100, "m", 2): 18.0, (K80, "z", 1): 0.0}
PROFILES = Profiles(steps_per_s=SPEEDS, source="speeds.json")


@pytest.mark.parametrize(
    ("placement", "level"),
    [
        (on("n1", 4), Level.NODE),
        (on("n1", 1) + on("n1", [1], role=1), Level.NODE),
        (on("n1", 1) + on("n2", 1), Level.RACK),
        (on("n1", 1) + on("n2", 1) + on("n3", 1), Level.DOMAIN),
        (on("n2", 1) + on("n4", 1) + on("n3", 1), Level.CLUSTER),
    ],
    ids=["one slot", "one node", "rack", "domain", "cluster"],
)
def test_span_is_the_widest_level_reached_across(placement: Placement, level: Level) -> None:
    assert span(placement, list(TREE.nodes)) is level


def test_each_factor_multiplies_the_speed() -> None:
    speed = SpeedModel(type_speed={V100: 2.0}, spread={Level.RACK: 0.5}, device_neighbour=0.9, node_neighbour=0.8)
    nodes = list(Cluster.uniform(("v100", 8, 4)).nodes)
    spread = on("n1", 1) + on("n2", 1)

    assert speed.rate(job(), on("n1", 1), nodes) == 2.0
    assert speed.rate(job(), spread, nodes) == 2.0 * 0.5
    assert speed.rate(job(), spread, nodes, [1.0], [1.0, 0.5]) == pytest.approx(2.0 * 0.5 * 0.9 * 0.8 * 0.9)


@pytest.mark.parametrize(
    ("gpus", "milli", "mates", "part"),
    [
        (1, 1000, 0, 1.0),
        (1, 500, 0, 1.0),
        (1, 125, 0, 0.25),
        (1, 125, 1, 0.25),
        (1, 333, 2, 1.0),
        (0.5, 500, 0, 1.0),
        (0.5, 125, 3, 0.25),
    ],
)
def test_throttled_job_does_a_fraction_of_its_work(gpus: float, milli: int, mates: int, part: float) -> None:
    assert duty(job(gpus=gpus), on("n1", 1, milli=milli), mates) == part


def test_elastic_job_is_as_fast_as_its_size_by_the_exponent() -> None:
    asked = job(workers=4, elastic=Elastic(min_tasks=1, max_tasks=4))
    nodes = list(TREE.nodes)

    assert SpeedModel().rate(asked, on("n1", 2, tasks=2), nodes) == 0.5
    assert SpeedModel(scaling=0.5).rate(asked, on("n1", 1, tasks=1), nodes) == 0.25**0.5


def test_profile_gives_the_measured_speed() -> None:
    speed = SpeedModel(profiles=PROFILES)
    nodes = list(MIXED.nodes)

    assert speed.rate(job(model="m"), on("n2", 1), nodes) == 2.0
    assert speed.rate(job(model="m", gpus=2), on("n1", 2), nodes) == 18.0
    assert speed.rate(job(), on("n1", 1), nodes) == 1.0


def test_parts_of_devices_are_worth_what_they_add_up_to() -> None:
    speed = SpeedModel(profiles=PROFILES)
    half = on("n1", [0], milli=500) + on("n1", [1], milli=500)

    # Two halves of V100 are one, wherever they are: 10 a second, not the 18 of two.
    assert speed.rate(job(model="m", gpus=0.5, workers=2), half, list(MIXED.nodes)) == 10.0


def test_pair_that_can_not_share_all_memory_says_nothing_of_parts_of_it() -> None:
    never = {(V100, "m", "m", 1): (0.0, 0.0)}
    speed = SpeedModel(profiles=Profiles(steps_per_s={(V100, "m", 1): 10.0}, pairs=never, source="test"))
    whole, half = job(model="m"), job(model="m", gpus=0.5)

    assert speed.beside(whole, whole, V100) == 0.0
    assert speed.beside(half, half, V100) == 10.0


def test_throttled_mate_interferes_less_when_interleaved() -> None:
    speed = SpeedModel(interleaved=True)
    same = job(labels=(("stages", "0.1/0.1/0.7/0.1"),))

    together = speed.among(same, 1.0, [(same, 1.0)], V100)

    assert together == pytest.approx(1.0 / 1.6)
    assert speed.among(same, 1.0, [(same, 0.25)], V100) == pytest.approx(1.0 - 0.25 * (1.0 - together))
    assert speed.among(same, 1.0, [(same, 0.0)], V100) == 1.0


def test_nominal_speed_is_the_best_that_there_is() -> None:
    speed = SpeedModel(profiles=PROFILES, type_speed={V100: 3.0, K80: 0.5})

    assert speed.nominal_rate(job(model="m")) == 10.0
    assert speed.nominal_rate(job(device_types=(K80, V100))) == 3.0
    assert speed.nominal_rate(job(device_types=(K80,))) == 0.5
    assert speed.nominal_rate(job()) == 1.0


@pytest.mark.parametrize(
    ("model", "gpus", "message"),
    [
        ("n", 1, "profiles speeds.json: no speed of model 'n'"),
        ("m", 3, "it has none for 3 devices"),
        ("z", 1, "'z' runs on no device type with 1 devices"),
    ],
)
def test_model_that_was_not_measured_is_refused(model: str, gpus: int, message: str) -> None:
    with pytest.raises(RotaError, match=message):
        SpeedModel(profiles=PROFILES).nominal_rate(job(model=model, gpus=gpus))


def test_place_that_was_not_measured_is_refused() -> None:
    with pytest.raises(RotaError, match="no speed of 'm' on 2 x 'k80'"):
        SpeedModel(profiles=PROFILES).rate(job(model="m", gpus=2), on("n2", 2), list(MIXED.nodes))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"spread": {Level.RACK: 0.0}}, "spread over a rack is 0"),
        ({"node_neighbour": 1.5}, "neighbour on the node is 1.5"),
        ({"device_neighbour": -1.0}, "neighbour on the device is -1"),
        ({"type_speed": {K80: 0.0}}, "speed of type 'k80' is 0"),
    ],
)
def test_factor_out_of_range_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(RotaError, match=message):
        SpeedModel(**fields)  # type: ignore[arg-type]  # a table of any fields


@pytest.mark.parametrize("fields", [{"restart_s": -1.0}, {"checkpoint_interval_s": -1.0}, {"checkpoint_s": -1.0}])
def test_negative_cost_is_refused(fields: dict[str, float]) -> None:
    with pytest.raises(RotaError, match="0 or more"):
        Costs(**fields)


def test_gavel_table_is_read(tmp_path: Path) -> None:
    path = tmp_path / "speeds.json"
    path.write_text('{"v100": {"(\'m\', 2)": {"null": 3.5, "(\'other\', 2)": [1.0, 2.0]}}}')

    assert read_profiles(path).rate(V100, "m", 2) == 3.5
    assert read_profiles(path).rate(K80, "m", 2) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "this is not JSON"),
        ("[1]", "it is a list, not an object"),
        ('{"v100": [1]}', "'v100' is not an object of models"),
        ('{"v100": {"x": {}}}', r"v100: x: 'x' is not of the form \('MODEL', DEVICES\)"),
        ('{"v100": {"(\'m\', 1)": {}}}', r'v100: \(.m., 1\): the speed alone, "null", is missing'),
        ('{"v100": {"(\'m\', 1)": {"null": -1}}}', r"v100: \('m', 1\): a speed is -1"),
        ('{"v100": {"(\'m\', 1)": {"null": "fast"}}}', r"v100: \('m', 1\): a speed is 'fast'; it must be a number"),
        ('{"v100": {"(\'m\', 1)": {"null": 1, "(\'n\', 2)": [1, 1]}}}', "another number of devices"),
        ('{"v100": {"(\'m\', 1)": {"null": 1, "(\'n\', 1)": [1]}}}', r"packed with \('n', 1\) it has \[1\]"),
    ],
)
def test_wrong_table_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "speeds.json"
    path.write_text(text)

    with pytest.raises(RotaError, match=message):
        read_profiles(path)


def test_missing_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RotaError, match="can't be read"):
        read_profiles(tmp_path / "none.json")


def test_relative_speeds_leave_growth_with_size_to_the_speed_model() -> None:
    """A type against another is the profile's; what more devices bring is not in it, because both have as many."""
    speeds = {(K80, "m", 1): 0.5, (K80, "m", 2): 0.5, (K80, "m", 4): 0.25}
    model = SpeedModel(profiles=Profiles(steps_per_s=speeds, source="x", is_relative=True), scaling=0.5)
    asked = job("j", gpus=1, workers=2, model="m", elastic=Elastic(min_tasks=1, max_tasks=4))
    nodes = [node("n1", 4, device_type=K80)]

    assert model.at_size(asked, K80, 4) == pytest.approx(0.25 * math.sqrt(2))
    assert model.rate(asked, on("n1", 4, tasks=4), nodes) == pytest.approx(0.25 * math.sqrt(2))
    assert model.on_type(asked, K80) == 0.5


def test_model_without_relative_speeds_runs_by_type_speed() -> None:
    model = SpeedModel(
        profiles=Profiles(steps_per_s={(K80, "m", 1): 0.5}, source="x", is_relative=True), type_speed={K80: 0.7}
    )

    assert model.on_type(job("j", model="unheard-of"), K80) == 0.7
    assert model.nominal_rate(job("j", model="unheard-of", device_types=(K80,))) == 0.7
    assert model.rate(job("j", model="unheard-of"), on("n1", 1), [node("n1", 1, device_type=K80)]) == 0.7


def test_network_cost_slows_a_job_down_by_task() -> None:
    nodes = [node(f"n{i}", 4, rack=f"r{i // 2}") for i in range(4)]
    model = SpeedModel(network=0.1)
    ring = job(workers=4)

    assert model.rate(ring, on("n1", 4, tasks=4), nodes) == 1.0
    assert model.rate(ring, on("n1", 2, tasks=2) + on("n2", 2, tasks=2), nodes) == 1 / (1 + 0.1 * 2 / 4)
    assert model.rate(ring, on("n1", 2, tasks=2) + on("n3", 2, tasks=2), nodes) == 1 / (1 + 0.1 * 8 / 4)
    with pytest.raises(RotaError, match="network cost"):
        SpeedModel(network=-1.0)


@pytest.mark.parametrize("placement", [on("n1", 4), on("n1", 2) + on("n4", 2), on("n1", 1) + on("n2", [1], role=1)])
def test_where_speeds_are_even_a_job_with_its_devices_alone_runs_at_speed_one(placement: Placement) -> None:
    asked = job("a", gpus=4)

    assert SpeedModel().is_even
    assert has_devices_alone(placement)
    assert SpeedModel().rate(asked, placement, list(TREE.nodes)) == SpeedModel().nominal_rate(asked) == 1.0


@pytest.mark.parametrize(
    "model",
    [
        SpeedModel(profiles=PROFILES),
        SpeedModel(type_speed={V100: 2.0}),
        SpeedModel(spread={Level.RACK: 0.5}),
        SpeedModel(network=0.1),
        SpeedModel(factor="mine.py:slow"),
    ],
)
def test_what_changes_speeds_by_place_is_not_even(model: SpeedModel) -> None:
    assert not model.is_even


@pytest.mark.parametrize("change", [{"milli": 500}, {"in_turn": True}, {"memory_milli": 500}])
def test_shared_devices_are_not_had_alone(change: dict[str, Any]) -> None:
    (slot,) = on("n1", 4)

    assert not has_devices_alone((slot._replace(**change),))
