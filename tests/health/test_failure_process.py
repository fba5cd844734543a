"""Drawn failures against the rates and laws that they are drawn from."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from rota.core.errors import RotaError
from rota.core.model.cluster import Node
from rota.core.model.job import NodeId
from rota.health.failure_model import FailureModel
from rota.health.failure_process import Breakdown, breakdowns
from rota.health.presets import LLAMA_3_STOPS, PRESETS, FailureParams, preset, with_params

DAY_S = 86_400.0
NODES = [Node(id=NodeId(f"n{index:03}"), devices=8, rack=f"r{index // 10}") for index in range(100)]


def drawn(days: float, seed: int = 1, name: str = "custom", **params: float | int) -> list[Breakdown]:
    model = with_params(preset(name), FailureParams(**params))  # type: ignore[arg-type] # counts and amounts
    found = breakdowns(NODES, model, random.Random(seed))
    return list(itertools.takewhile(lambda each: each.at_s < days * DAY_S, found))


def test_rate_is_kept_by_every_law() -> None:
    laws: tuple[dict[str, float], ...] = ({}, {"shape": 0.7}, {"shape": 2.0}, {"lemons": 0.1}, {"rack": 0.3})
    for law in laws:
        failed = sum(len(each.nodes) for each in drawn(4000, 1, "custom", rate=10.0, repair_s=60.0, **law))
        assert failed == pytest.approx(4000, rel=0.06), law


def test_same_seed_same_failures() -> None:
    assert drawn(500, rate=10.0) == drawn(500, rate=10.0) != drawn(500, seed=2, rate=10.0)


def test_order_is_by_time_and_no_node_fails_while_it_is_down() -> None:
    up_s = dict.fromkeys((node.id for node in NODES), 0.0)
    last_s = 0.0
    for each in drawn(300, rate=50.0, rack=0.5, repair_s=3 * DAY_S, detect_s=60.0):
        assert each.at_s >= last_s
        assert each.detected_s == each.at_s + 60.0
        last_s = each.at_s
        for node_id, repaired_s in zip(each.nodes, each.repaired_s, strict=True):
            assert up_s[node_id] <= each.at_s
            up_s[node_id] = repaired_s


def test_racks_fail_together() -> None:
    together = [each for each in drawn(1000, rate=10.0, rack=0.5, repair_s=60.0) if len(each.nodes) > 1]

    assert together
    rack_of = {node.id: node.rack for node in NODES}
    assert all(len({rack_of[node_id] for node_id in each.nodes}) == 1 for each in together)


def test_rack_failures_need_racks() -> None:
    model = with_params(preset("custom"), FailureParams(rack=0.5))
    with pytest.raises(RotaError, match="several racks"):
        next(breakdowns(NODES[:5], model, random.Random(0)))


def test_lemons_fail_more_often() -> None:
    per_node = Counter(node_id for each in drawn(2000, rate=10.0, lemons=0.05, repair_s=60.0) for node_id in each.nodes)

    assert sum(count for _, count in per_node.most_common(5)) > 0.25 * per_node.total()


def test_infant_mortality_follows_repairs_and_wear_grows() -> None:
    plain = len(drawn(2000, rate=10.0, repair_s=60.0))
    infant = len(drawn(2000, rate=10.0, repair_s=60.0, infant=50.0, infant_s=3 * DAY_S))
    assert infant > 2 * plain
    worn = drawn(2000, rate=10.0, repair_s=60.0, wear=1.0)
    halves = Counter(each.at_s > 1000 * DAY_S for each in worn)
    assert halves[True] > 1.4 * halves[False]


def test_presets_have_the_published_rates() -> None:
    assert PRESETS["rsc-1"].per_1000_node_days == 6.5
    assert PRESETS["llama-3"].per_1000_node_days == pytest.approx(3.79, abs=0.005)
    assert sum(LLAMA_3_STOPS.values()) == 419
    assert PRESETS["rsc-1-measured"].node_mttf_s / 128 / 3600 == pytest.approx(7.9)


@pytest.mark.parametrize(
    ("params", "said"),
    [({"shape": 0.0}, "shape is 0"), ({"rack": 1.5}, "rack is 1.5"), ({"spares": -1}, "spares is -1")],
)
def test_impossible_models_are_refused(params: dict[str, float], said: str) -> None:
    with pytest.raises(RotaError, match=said):
        FailureModel(name="bad", **params)  # type: ignore[arg-type] # counts and amounts


def test_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(RotaError, match="did you mean 'rsc-1'"):
        preset("rsc1")
