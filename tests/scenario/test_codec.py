"""A scenario comes back from its JSON as it was; headers of older versions are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rota.core.errors import RotaError
from rota.core.model.job import Level
from rota.perf.profiles.partial_profiles import EstimateSpec
from rota.perf.speed.model import Costs, SpeedModel
from rota.scenario import Scenario, decode_scenario, encode_scenario
from rota.store.journal import JournalHeader, JournalReader
from scenario.full import FULL, TWO

OLD = (
    '{"rota_journal":1,"policy":"las:thresholds=1200","placement":"consolidate","tenancy":"none","profiles":null,'
    '"about":"simulation of three.csv","cluster":[{"id":"n1","devices":4}],"seed":3,"restart_s":10.0,'
    '"estimate":{"known":0.4,"fill":"completion","observes":true,"seed":3,"held_out_error":0.25},'
    '"speed":{"gaps":1.0,"spread":{"rack":0.9}},"from_the_future":[1]}\n'
)


@pytest.mark.parametrize("scenario", [FULL, Scenario(policies=("fifo",)), Scenario()], ids=["full", "one", "empty"])
def test_scenario_comes_back_as_it_was(scenario: Scenario) -> None:
    text = json.dumps(encode_scenario(scenario), allow_nan=False)

    assert decode_scenario(json.loads(text)) == scenario


def test_every_field_of_the_full_scenario_differs_from_its_default() -> None:
    plain = Scenario()

    assert [name for name in Scenario.__slots__ if getattr(FULL, name) == getattr(plain, name)] == []


def test_defaults_are_left_out() -> None:
    assert encode_scenario(Scenario(policies=("fifo",), placement="any", cluster="gpu=4/4")) == {
        "policy": "fifo", "placement": "any", "tenancy": "none", "profiles": None, "cluster": "gpu=4/4",
    }  # fmt: skip


def test_header_of_an_older_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "old.journal"
    path.write_text(OLD)

    header = JournalReader(path).header

    assert header == JournalHeader(
        scenario=Scenario(
            policies=("las:thresholds=1200",),
            placement="consolidate",
            cluster=header.cluster,
            estimate=EstimateSpec(known=0.4, seed=3),
            speed=SpeedModel(gaps=1.0, spread={Level.RACK: 0.9}),
            costs=Costs(restart_s=10.0),
            seed=3,
        ),
        about="simulation of three.csv",
        held_out_error=0.25,
    )
    assert header.cluster.devices == 4


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        (Scenario(policies=("fifo", "las"), placement="any", cluster=TWO), "one policy"),
        (Scenario(policies=("fifo",), cluster=TWO), "its placement"),
        (Scenario(policies=("fifo",), placement="any", cluster="gpu=4/4"), "'gpu=4/4'"),
    ],
    ids=["two policies", "no placement", "no cluster"],
)
def test_header_needs_one_run(scenario: Scenario, message: str) -> None:
    with pytest.raises(RotaError, match=message):
        JournalHeader(scenario=scenario)


def test_policy_given_twice_is_refused() -> None:
    with pytest.raises(RotaError, match="policy 'las' is given twice"):
        Scenario(policies=("las", "fifo", "las"))


def test_scenario_of_several_policies_is_no_run() -> None:
    with pytest.raises(RotaError, match="this scenario has 2"):
        _ = FULL.policy
    assert FULL.under("fifo").policy == "fifo"
