"""HiveD's scenarios, where their files are at hand, and Rota's own, always."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.hived import Replay, main, pod_spec, started
from conformance.pod_types import Bind, PodRefused, Preempt, Question, Wait
from conformance.pods import PodFront
from rota.tenancy.cells.check import check_cells

OWN = Path(__file__).parent / "own" / "scenarios.json"
FILES = ("cases.json", "features.json", "lab6.json")


def data() -> Path:
    if not os.environ.get("ROTA_DATA"):
        pytest.skip("ROTA_DATA is not set; it names the folder with HiveD's scenario files")
    return Path(os.environ["ROTA_DATA"]) / "hived"


def test_own_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    status = main([str(OWN)])

    assert capsys.readouterr().out == "30 of 30 steps as expected\n"
    assert status == 0


def test_a_failing_step_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenarios = json.loads(OWN.read_text())
    scenarios["scenarios"] = scenarios["scenarios"][:1]
    scenarios["scenarios"][0]["steps"][0]["expect"]["outcome"] = "wait"
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(scenarios))

    status = main(["--config-dir", str(OWN.parent / "config"), str(path)])

    lines = capsys.readouterr().out.splitlines()
    assert status == 1
    assert lines[0].startswith("wrong.json: quota-is-kept step 1 (schedule a): expected wait, got bind")
    assert lines[-1] == "6 of 7 steps as expected"


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_the_peers_scenarios(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = data() / name
    if not path.exists():
        pytest.skip(f"{path} is not there")

    status = main([str(path)])

    assert status == 0, capsys.readouterr().out


def defect(name: str) -> tuple[Replay, list[object]]:
    """Replay one of the known defects to its end, checking all invariants at each step."""
    scenarios = json.loads((data() / "known_defects.json").read_text())["scenarios"]
    scenario = next(s for s in scenarios if s["id"] == f"defect-{name}")
    specs = {pod: pod_spec(values) for pod, values in scenario["podSpecs"].items()}
    run = Replay(data(), specs, started(data() / scenario["config"]))
    outcomes: list[object] = []
    for step in scenario["steps"]:
        outcomes.append(run.step(step))
        check_cells(run.front.accounts)
    return run, outcomes


def test_no_priority_inversion_on_a_reserved_cell() -> None:
    run, outcomes = defect("priority-inversion-on-reserved-cell")

    assert isinstance(outcomes[-1], Wait)
    assert set(run.front.groups) == {"high"}


def test_opportunistic_pod_leaves_a_doomed_node() -> None:
    run, _ = defect("oppo-pod-on-doomed-bad-node")
    (cell,) = run.front.promised("vc1", "M60-NODE-POOL")

    assert not cell.is_healthy
    run.front.turn("10.151.41.26", is_up=True)
    check_cells(run.front.accounts)
    assert cell.is_healthy


def test_relaxed_split_keeps_the_halves() -> None:
    _, outcomes = defect("relaxed-split-loses-buddies")

    bind = outcomes[-1]
    assert isinstance(bind, Bind)
    assert {record.node for record in bind.records} <= {"0.0.3.3", "0.0.4.0", "0.0.4.1", "0.0.4.2", "0.0.4.3"}


def test_quota_is_back_after_a_node_healed() -> None:
    _, outcomes = defect("quota-lost-after-heal")

    bind = outcomes[-1]
    assert isinstance(bind, Bind)
    assert bind.node in {"10.151.41.23", "10.151.41.24"}


def test_cell_is_bad_again() -> None:
    run, _ = defect("quota-lost-after-heal-then-bad")

    (cell,) = run.front.promised("default", "2-K80-NODE")
    assert not cell.is_healthy


def test_victim_on_a_bad_node_goes() -> None:
    run, outcomes = defect("bad-victim-release")

    assert isinstance(outcomes[-2], Preempt)
    assert set(run.front.groups) == {"g2", "g4"}


def test_second_tenant_uses_the_healthy_half() -> None:
    _, outcomes = defect("bad-node-then-second-vc")

    bind = outcomes[-1]
    assert isinstance(bind, Bind)
    assert bind.node == "0.0.4.2"


def test_a_gang_outlives_its_tenant() -> None:
    plan = started(OWN.parent / "config" / "hall.yaml").accounts.forest.plan
    spec = pod_spec(
        {
            "virtualCluster": "green",
            "leafCellNumber": 4,
            "affinityGroup": {"name": "g", "members": [{"podNumber": 2, "leafCellNumber": 4}]},
        }
    )
    before = PodFront(plan)
    first = before.schedule("g-0", spec, Question.FILTERING)
    assert isinstance(first, Bind)
    after = PodFront(replace(plan, tenants={name: cells for name, cells in plan.tenants.items() if name != "green"}))
    after.recover({"g-0": (spec, first)}, ())

    second = after.schedule("g-1", spec, Question.FILTERING)

    assert isinstance(second, Bind)
    assert second.node != first.node
    with pytest.raises(PodRefused, match="tenant is 'green', which owns no cells"):
        after.schedule("new", replace(spec, group=None, members=()), Question.FILTERING)


def test_steps_of_what_does_not_load_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (OWN.parent / "config" / "hall.yaml").read_text()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "hall.yaml").write_text(text.replace("RACK, cellNumber: 1", "RACK, cellNumber: 9"))
    scenarios = json.loads(OWN.read_text())
    scenarios["scenarios"] = scenarios["scenarios"][:1]
    path = tmp_path / "unloaded.json"
    path.write_text(json.dumps(scenarios))

    assert main([str(path)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "0 of 7 steps as expected"


def test_a_load_that_should_fail_is_no_step_but_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario = {"id": "odd", "config": "hall.yaml", "expectLoad": {"outcome": "error"}, "steps": []}
    path = tmp_path / "odd.json"
    path.write_text(json.dumps({"scenarios": [scenario]}))

    assert main(["--config-dir", str(OWN.parent / "config"), str(path)]) == 1
    assert capsys.readouterr().out.splitlines() == ["odd.json: odd load: it loads", "0 of 0 steps as expected"]


def test_what_is_no_file_of_scenarios_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([str(tmp_path / "nosuch.json")])

    assert left.value.code == 2
    assert "nosuch.json is no file of scenarios" in capsys.readouterr().err
