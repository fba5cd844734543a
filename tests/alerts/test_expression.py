"""Conditions of alert rules: what they mean, and the one line that says what is wrong with a bad one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rota.core.errors import RotaError
from rota.files.alerts.expression import BadCondition, Labels, Samples, parse_condition, parse_matchers
from rota.files.alerts.settings import AlertRule, default_rules
from rota.files.alerts.sources import EVENTS, SINGLE
from rota.files.up_file import UpFile, settings_from

SAMPLES: Samples = {
    "rota_queue_wait_seconds": [((("tenant", "nlp"),), 4000.0), ((("tenant", "vision"),), 10.0)],
    "rota_devices": [
        ((("type", "A100"), ("use", "held")), 6.0),
        ((("type", "A100"), ("use", "free")), 2.0),
        ((("type", "H100"), ("use", "held")), 8.0),
    ],
    "rota_forecast_coverage_ratio": [((("moment", "start"),), 0.5), ((("moment", "end"),), 0.5)],
    "rota_forecasts_scored": [((("moment", "start"),), 60.0), ((("moment", "end"),), 3.0)],
    "rota_gpu_up": [],
}
NLP: Labels = (("tenant", "nlp"),)
VISION: Labels = (("tenant", "vision"),)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rota_queue_wait_seconds > 1h", {NLP: True, VISION: False}),
        ("rota_queue_wait_seconds<=10", {NLP: False, VISION: True}),
        ('rota_queue_wait_seconds{tenant="vision"} > 1h', {VISION: False}),
        ('rota_queue_wait_seconds{tenant=~"n.*|x", tenant!="vision"} > 1h', {NLP: True}),
        ('rota_queue_wait_seconds{tenant!~"n.*"} == 10', {VISION: True}),
        ('sum(rota_devices{use="held"}) > 13', {(): True}),
        ('sum(rota_devices{use="held"}) / sum(rota_devices) > 90%', {(): False}),
        ("count(rota_devices) == 3", {(): True}),
        ("max(rota_devices) != 8", {(): False}),
        ("avg(rota_devices) < 5.4", {(): True}),
        ('sum(rota_devices{use="no"}) > 0', {(): False}),
        ("min(rota_gpu_up) < 1", {}),
        ("sum(rota_devices) / sum(rota_gpu_up) > 1", {}),
        (
            "rota_forecast_coverage_ratio < 70% and rota_forecasts_scored > 50",
            {(("moment", "start"),): True, (("moment", "end"),): False},
        ),
        ("rota_queue_wait_seconds > 1h and sum(rota_devices) > 100", {NLP: False, VISION: False}),
        ('rota_queue_wait_seconds{tenant="a > b / c and {d}"} > 1', {}),
    ],
)
def test_conditions_hold_where_they_should(text: str, expected: dict[Labels, bool]) -> None:
    found = parse_condition(text).found(SAMPLES)

    assert {labels: holds for labels, (_, holds) in found.items()} == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rota_que_wait_seconds > 1", "unknown metric 'rota_que_wait_seconds'; did you mean 'rota_queue_wait_seconds'"),
        ('rota_queue_wait_seconds{user="a"} > 1', "has no label 'user'; it has tenant"),
        ("rota_queue_wait_seconds", "it compares nothing"),
        ("rota_queue_wait_seconds > soon", "'soon' is not a number; write it like 3, 90%, 30m or 5GiB"),
        ("rota_queue_wait_seconds > inf", "'inf' is not a number"),
        ("rota_queue_wait_seconds > nan", "'nan' is not a number"),
        ("rota_queue_wait_seconds{tenant=nlp} > 1", 'write labels as {label="value"'),
        ('rota_queue_wait_seconds{tenant=~"("} > 1', "is not a pattern"),
        ("rota_queue_wait_seconds > 1 > 2", "is not a number"),
        ("sum(sum(rota_jobs)) > 1", "write metrics as NAME"),
        ("rota_queue_wait_seconds / rota_devices > 1", "the labels of both sides of / differ"),
        ("rota_queue_wait_seconds > 1 and rota_devices > 1", "the labels of both sides of `and` differ"),
        ("", "it compares nothing"),
        ("rota_jobs > 1" + " " * 500, "longer than 500 characters"),
    ],
)
def test_a_bad_condition_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(BadCondition, match=re.escape(message)) as caught:
        parse_condition(text)
    assert "\n" not in str(caught.value)


def test_matchers_of_silences_name_labels_that_exist() -> None:
    assert [each.takes("a1") for each in parse_matchers('node=~"a.*", tenant=""')] == [True, False]
    with pytest.raises(BadCondition, match="no alert has a label 'nod'; did you mean 'node'"):
        parse_matchers('nod="a"')


def rule(**values: Any) -> dict[str, Any]:
    return {"name": "r", "message": "m", **values}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rules": [rule()]}, "rule 'r': give either `when` (a condition) or `event`"),
        ({"rules": [rule(when="rota_jobs > 1", event="audit")]}, "give either"),
        (
            {"rules": [rule(when="rota_jbs > 1")]},
            "rule 'r': 'rota_jbs > 1': unknown metric 'rota_jbs'; did you mean 'rota_jobs'",
        ),
        ({"rules": [rule(event="job-faild")]}, "unknown event 'job-faild'; did you mean 'job-failed'"),
        ({"rules": [rule(event="job-failed", by=["node"])]}, "by: job-failed has no label 'node'; it has job"),
        ({"rules": [rule(event="job-failed", **{"for": "5m"})]}, "`for` is for rules with `when`"),
        ({"rules": [rule(when="rota_jobs > 1", count=3)]}, "count is for rules with `event`"),
        ({"rules": [{**rule(when="rota_jobs > 1"), "message": "{tenant}"}]}, "there is no {tenant}; there are state"),
        ({"rules": [rule(when="rota_jobs > 1")] * 2}, "there are two rules 'r'; rename one"),
        ({"rules": [rule(when="rota_jobs > 1", to=["ops"])]}, "rule 'r': there is no channel 'ops'; there are none"),
        ({"to": ["ops"]}, "there is no channel 'ops'"),
        ({"without": ["disk-nearly-ful"]}, "did you mean 'disk-nearly-full'"),
        ({"rules": [rule(when="rota_jobs > 1", severity="high")]}, "severity"),
        ({"every": "0s"}, "every"),
    ],
)
def test_bad_rules_are_refused_with_their_name(values: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(RotaError, match=re.escape(message)) as caught:
        settings_from({"alerts": values}, tmp_path / "rota.yaml")
    assert "\n" not in str(caught.value)
    assert "rota.yaml" in str(caught.value)


def test_a_users_own_address_needs_a_user() -> None:
    smtp = {"smtp": {"host": "x", "from": "a@b.org"}}
    of_job = rule(when="job_wait_seconds > 1h", to=["email"])
    UpFile.model_validate({"notifications": smtp, "alerts": {"rules": [of_job]}})
    with pytest.raises(ValueError, match="have no label `user`; name a channel"):
        UpFile.model_validate({"notifications": smtp, "alerts": {"rules": [rule(when="rota_jobs > 1", to=["email"])]}})


def test_the_rules_that_come_with_rota_can_be_replaced_and_left_out() -> None:
    own = rule(when="rota_disk_free_ratio < 5%") | {"name": "disk-nearly-full"}
    part = UpFile.model_validate({"alerts": {"without": ["gpu-gone"], "rules": [own]}}).alerts

    held = {each.name: each for each in part.all_rules}

    assert len(default_rules()) >= 12
    assert held.keys() == default_rules().keys() - {"gpu-gone"}
    assert held["disk-nearly-full"].when == "rota_disk_free_ratio < 5%"
    assert held["disk-nearly-full"].to == ()


def test_a_message_fills_in_what_it_names_and_nothing_else() -> None:
    made = AlertRule.model_validate(rule(when="rota_queue_wait_seconds > 1", message="{tenant}: {value} {{x}}"[:18]))

    assert made.text({"tenant": "{value}", "value": "3"}) == "{value}: 3 "


def test_the_page_lists_the_rules_that_come_with_rota_and_their_sources() -> None:
    page = (Path(__file__).parents[2] / "docs/howto/be-told-in-time.md").read_text(encoding="utf-8")

    rows = dict(re.findall(r"^\| `([\w-]+)` \| (.+) \|$", page, re.MULTILINE))
    for name, rule_ in default_rules().items():
        assert (rule_.when or rule_.event or "").replace("|", "\\|") in rows[name], name
        assert rows[name].endswith(rule_.severity)
    assert [name for name in (*SINGLE, *EVENTS) if f"`{name}`" not in page] == []
