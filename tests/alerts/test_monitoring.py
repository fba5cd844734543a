"""Prometheus' rules and the Grafana dashboard: they load, name metrics that exist, and fire when they should."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import forked
from rota.files.alerts.expression import parse_condition
from rota.files.alerts.monitoring import MonitoredPlace, expression_of, grafana_dashboard, prometheus_rules
from rota.files.alerts.settings import AlertsPart
from rota.files.alerts.sources import SCRAPED

Json = dict[str, Any]
FOLDER = Path(__file__).parents[2] / "build" / "promtool"
KUBERNETES = frozenset({"rota_kubernetes_repairs_total"})
_METRIC = re.compile(r"\b(?:rota_|DCGM_FI_)\w+")


def promtool() -> str:
    """The checker of Prometheus, from Debian's package without installing it; the test is skipped without it."""
    found = shutil.which("promtool") or shutil.which("promtool", path=str(FOLDER / "usr/bin"))
    if found is None and shutil.which("apt-get") and shutil.which("dpkg"):
        FOLDER.mkdir(parents=True, exist_ok=True)
        command = ["apt-get", "-o", "APT::Sandbox::User=root", "download", "prometheus"]
        subprocess.run(command, cwd=FOLDER, capture_output=True, timeout=300, check=False)
        for package in FOLDER.glob("prometheus_*.deb"):
            subprocess.run(["dpkg", "-x", str(package), str(FOLDER)], capture_output=True, timeout=120, check=False)
        found = shutil.which("promtool", path=str(FOLDER / "usr/bin"))
    if found is None:
        pytest.skip("promtool is not here, and Debian's package prometheus can't be fetched")
    return found


def expressions(place: MonitoredPlace) -> list[str]:
    rules = prometheus_rules(place, AlertsPart().all_rules if place is MonitoredPlace.MACHINE else ())
    found = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    return found + [target["expr"] for panel in grafana_dashboard(place)["panels"] for target in panel["targets"]]


@pytest.mark.parametrize("place", MonitoredPlace)
def test_all_metrics_are_scraped(place: MonitoredPlace) -> None:
    named = {name for expression in expressions(place) for name in _METRIC.findall(expression)}

    assert named - SCRAPED.keys() == (KUBERNETES if place is MonitoredPlace.KUBERNETES else frozenset())


@pytest.mark.parametrize("place", MonitoredPlace)
def test_the_dashboard_is_one_that_grafana_takes(place: MonitoredPlace) -> None:
    board = grafana_dashboard(place)
    panels = board["panels"]

    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = [(cell, panel["title"]) for panel in panels for cell in _cells(panel["gridPos"])]
    assert len({cell for cell, _ in taken}) == len(taken), "panels overlap"
    assert all("only" not in panel and panel["datasource"]["uid"] == "${source}" for panel in panels)
    assert [each["name"] for each in board["templating"]["list"]] == ["source"]


def _cells(place: dict[str, int]) -> list[tuple[int, int]]:
    assert place["x"] + place["w"] <= 24
    return [(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('rota_queue_wait_seconds{tenant=~"a|b"} > 30m', 'rota_queue_wait_seconds{tenant=~"a|b"} > 1800.0'),
        ("sum(rota_devices) / count(rota_jobs) >= 5%", "sum(rota_devices) / count(rota_jobs) >= 0.05"),
        ("rota_jobs / sum(rota_jobs) > 1", "rota_jobs / on() group_left() sum(rota_jobs) > 1.0"),
        ("rota_jobs > 1 and sum(rota_devices) < 2", "rota_jobs > 1.0 and on() sum(rota_devices) < 2.0"),
    ],
)
def test_conditions_become_expressions(text: str, expected: str) -> None:
    assert expression_of(parse_condition(text)) == expected


def run(folder: Path, *words: str) -> str:
    found = subprocess.run([promtool(), *words], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


@pytest.mark.parametrize("name", ["", "engine-steps-are-slow"])
def test_no_two_alerts_have_one_name(name: str) -> None:
    own = AlertsPart.model_validate(
        {"rules": [{"name": name, "when": "rota_jobs > 5", "message": "x"}] if name else []}
    )
    rules = prometheus_rules(MonitoredPlace.MACHINE, own.all_rules)

    found = [rule["alert"] for group in rules["groups"] for rule in group["rules"]]

    assert len(set(found)) == len(found)
    assert ("RotaEngineStepsAreSlowBySettings" in found) == bool(name)


@pytest.mark.slow
def test_prometheus_loads_the_rules_and_they_fire(tmp_path: Path) -> None:
    exported = forked.run(["alerts", "export", "prometheus", "--out", str(tmp_path / "rules.yaml")], env={**os.environ})
    assert exported.returncode == 0, exported.stderr
    rules = yaml.safe_load((tmp_path / "rules.yaml").read_text())
    (tmp_path / "kubernetes.yaml").write_text(json.dumps(prometheus_rules(MonitoredPlace.KUBERNETES)))
    panels = [
        {"record": f"panel:{place.value}:{number}", "expr": expression}
        for place in MonitoredPlace
        for number, expression in enumerate(expressions(place))
    ]
    (tmp_path / "panels.yaml").write_text(json.dumps({"groups": [{"name": "panels", "rules": panels}]}))
    run(tmp_path, "check", "rules", "--lint-fatal", "rules.yaml", "kubernetes.yaml", "panels.yaml")

    summary = "A job of tenant nlp waits for 13h 0m 0s; `rota ps` and `rota why` say for what."
    wait = {"exp_labels": {"severity": "warning", "tenant": "nlp"}, "exp_annotations": {"summary": summary}}
    test: Json = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": 'rota_queue_wait_seconds{tenant="nlp"}', "values": "46800x30"},
                    {"series": 'rota_queue_wait_seconds{tenant="vision"}', "values": "60x30"},
                    {"series": "rota_disk_free_ratio", "values": "0.5x30"},
                ],
                "alert_rule_test": [
                    {"eval_time": "5m", "alertname": "RotaQueueIsLong", "exp_alerts": []},
                    {"eval_time": "20m", "alertname": "RotaQueueIsLong", "exp_alerts": [wait]},
                    {"eval_time": "20m", "alertname": "RotaDiskNearlyFull", "exp_alerts": []},
                    {"eval_time": "20m", "alertname": "RotaIsAway", "exp_alerts": [_away(rules)]},
                ],
            }
        ],
    }
    (tmp_path / "test.yaml").write_text(json.dumps(test))
    run(tmp_path, "test", "rules", "test.yaml")


def _away(rules: Json) -> Json:
    rule = next(rule for group in rules["groups"] for rule in group["rules"] if rule["alert"] == "RotaIsAway")
    return {"exp_labels": rule["labels"], "exp_annotations": rule["annotations"]}
