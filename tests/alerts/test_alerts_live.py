"""Alerts of a real manager: told once over kills, listed, silenced and acknowledged; every metric exists."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import forked
from accounts.receivers import Web, mail_server, web_server
from accounts.test_usage import client_of
from managers import Manager, eventually
from rota.api.gpu.prometheus import gpu_metrics
from rota.drivers.local.gpu.telemetry import GpuTelemetry
from rota.files.alerts.sources import SCRAPED
from rota.live.gpus.monitor import GpuMonitor
from rota.sdk.client import Refused

pytestmark = pytest.mark.slow
Json = dict[str, Any]
RULES = [
    {
        "name": "waits",
        "when": 'rota_queue_wait_seconds{tenant="nlp"} > 0.2',
        "for": "200ms",
        "severity": "critical",
        "message": "{tenant} waits",
        "to": ["ops", "chat", "phone", "team"],
    },
    {"name": "fails", "event": 'job-failed{tenant="nlp"}', "message": "{name} of {user} failed", "to": ["email"]},
    {
        "name": "tokens",
        "event": 'audit{what="token-create"}',
        "by": ["who"],
        "message": "{who} made a token",
        "to": ["ops"],
    },
]


class Told:
    """A manager with rules, and its receivers."""

    def __init__(self, manager: Manager, web: Web, mails: list[Any]) -> None:
        self.manager, self.web, self.mails = manager, web, mails

    def states(self, rule: str) -> list[str]:
        return [row["state"] for row in self.manager.client.alerts() if row["rule"] == rule]

    def hooks(self, rule: str) -> list[Json]:
        return [each for each in self.web.bodies("/ops") if each["rule"] == rule]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    folder = tmp_path_factory.mktemp("alerts")
    with web_server() as web, mail_server() as (mails, port):
        at = f"http://127.0.0.1:{web.port}"
        channels = {"ops": {"webhook": f"{at}/ops"}, "chat": {"slack": f"{at}/slack"}, "phone": {"ntfy": f"{at}/ntfy"}}
        settings: Json = {
            "health": {"checks": []},
            "notifications": {
                "smtp": {"host": "127.0.0.1", "port": port, "from": "rota@example.org"},
                "user_email": "{user}@example.org",
                "channels": {**channels, "team": {"email": ["team@example.org"]}},
            },
            "alerts": {"every": "100ms", "rules": RULES},
        }
        config = folder / "rota.yaml"
        config.write_text(json.dumps(settings))
        manager = Manager(folder, "--emulate", "gpu=2/2", "--config", str(config)).start()
        try:
            yield Told(manager, web, mails)
        finally:
            manager.clean_up()


def test_a_condition_is_told_once_to_every_channel_over_kills_and_its_end_too(told: Told) -> None:
    manager = told.manager
    blocker = manager.submit("sleep 600", tenant="vision", resources={"gpus": 2})
    manager.wait(blocker, "running")
    waiter = manager.submit("true", tenant="nlp", resources={"gpus": 2})
    eventually(lambda: len(told.hooks("waits")) == 1 and len(told.mails) == 1)
    eventually(lambda: [path for path, _, _ in told.web.posts].count("/ntfy") == 1)

    for _ in range(2):
        manager.kill()
        manager.start()
        eventually(lambda: "firing" in told.states("waits"))
    manager.client.act(blocker, "cancel")
    manager.wait(waiter, "succeeded")
    eventually(lambda: len(told.hooks("waits")) == 2 and len(told.mails) == 2)

    assert [(each["state"], each["severity"]) for each in told.hooks("waits")] == [
        ("firing", "critical"),
        ("resolved", "critical"),
    ]
    assert [mail["Subject"] for mail in told.mails] == ["[rota] Critical: waits", "[rota] Resolved: waits"]
    assert len(told.web.bodies("/slack")) == 2
    assert told.states("waits") == ["resolved"]
    row = next(each for each in manager.client.alerts() if each["rule"] == "waits")
    assert row["text"] == "nlp waits"
    assert row["labels"] == {"tenant": "nlp"}


def test_events_are_counted_once_though_the_manager_is_killed_right_after_them(told: Told) -> None:
    manager = told.manager
    told.mails.clear()
    failing = manager.submit("exit 3", name="bert", tenant="nlp")
    manager.wait(failing, "failed")
    manager.kill()
    manager.start()
    eventually(lambda: told.mails)
    manager.kill()
    manager.start()
    client_of(manager, "t", "viewer", "nlp")
    eventually(lambda: told.hooks("tokens"))

    assert [(mail["To"], mail["Subject"]) for mail in told.mails] == [("local@example.org", "[rota] Warning: fails")]
    assert "bert of local failed" in told.mails[0].get_payload()
    assert len(told.hooks("tokens")) == 1


@pytest.mark.attack(
    "silences the alerts of the admins, or reads those about other tenants",
    stopped_by="only admins act on alerts; others see what has the label of one of their tenants",
)
def test_alerts_are_silenced_and_acknowledged_by_admins_only(told: Told) -> None:
    client = told.manager.client
    made = client.silence_alerts("waits", 'tenant="nlp"', for_s=3600.0, why="maintenance")
    assert [each["id"] for each in client.silences()] == [made["id"]]
    before = len(told.hooks("waits"))
    blocker = told.manager.submit("sleep 600", tenant="vision", resources={"gpus": 2})
    told.manager.wait(blocker, "running")
    told.manager.submit("sleep 600", tenant="nlp", resources={"gpus": 2})
    eventually(lambda: "firing" in told.states("waits"))
    row = next(each for each in client.alerts() if each["state"] == "firing")
    assert row["silenced"]
    assert client.acknowledge_alert(row["id"])["acknowledged_by"] == "local"
    told.manager.kill()
    told.manager.start()
    client = told.manager.client
    assert next(each for each in client.alerts() if each["id"] == row["id"])["acknowledged_by"] == "local"
    assert len(told.hooks("waits")) == before
    client.end_silence(made["id"])
    eventually(lambda: len(told.hooks("waits")) == before + 1)
    audit = [entry["what"] for entry in client.audit(50)]
    assert {"silence-alerts", "acknowledge-alert", "end-silence"} <= set(audit)

    with pytest.raises(Refused, match="unknown rule 'wait'; did you mean 'waits'"):
        client.silence_alerts("wait", for_s=60)
    with pytest.raises(Refused, match="no alert has a label 'tenants'"):
        client.silence_alerts("waits", 'tenants="x"', for_s=60)
    with pytest.raises(Refused, match="name a rule, or labels"):
        client.silence_alerts(for_s=60)
    with pytest.raises(Refused, match="there is no pending or firing alert"):
        client.acknowledge_alert("none")
    with pytest.raises(Refused, match="there is no silence"):
        client.end_silence("none")
    for tenant, sees in (("nlp", True), ("vision", False)):
        other = client_of(told.manager, f"of-{tenant}", "maintainer", tenant)
        assert ("waits" in {each["rule"] for each in other.alerts()}) == sees
        for refused in (
            lambda other=other: other.silence_alerts("waits", for_s=60),
            lambda other=other: other.acknowledge_alert(row["id"]),
            other.silences,
            other.alert_rules,
        ):
            with pytest.raises(Refused, match="needs the role admin"):
                refused()


def test_every_metric_that_rules_may_name_is_scraped_and_no_other(told: Told) -> None:
    with urllib.request.urlopen(f"{told.manager.client.url}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    families = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    suffixes = {"histogram": ("_bucket", "_count", "_sum")}
    names = {f"{name}{suffix}" for name, kind in families.items() for suffix in suffixes.get(kind, ("",))}
    known = {name for name in SCRAPED if not name.startswith(("DCGM_", "rota_gpu_up"))}

    assert names == known
    for line in text.splitlines():
        found = re.match(r"^(\w+)(?:\{(.*)\})? ", line)
        if found and found[1] in SCRAPED:
            assert set(re.findall(r'(\w+)="', found[2] or "")) <= set(SCRAPED[found[1]].labels), line


def test_the_command_lists_and_acts(told: Told) -> None:
    def rota(*words: str) -> str:
        found = forked.run([*words, "--server", told.manager.client.url], env=told.manager.env)
        assert found.returncode == 0, found.stderr
        return found.stdout

    assert "waits" in rota("alerts", "--all")
    assert "job-failed{tenant=" in rota("alerts", "rules", "-o", "json").replace("\\", "")
    silence = rota("alerts", "silence", "fails", "--for", "2h", "--why", "x").split()[1]
    assert silence in rota("alerts", "silences")
    rota("alerts", "unsilence", silence)
    refused = forked.run(["alerts", "silence", "fails", "--for", "never"], env=told.manager.env)
    assert refused.returncode == 2
    assert "--for" in refused.stderr


def test_check_refuses_a_bad_rule_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "rota.yaml"
    path.write_text("alerts: {rules: [{name: r, when: rota_job > 3, message: m}]}\n")

    found = forked.run(["check", str(path)])

    assert found.returncode == 2
    assert "rule 'r': 'rota_job > 3': unknown metric 'rota_job'; did you mean 'rota_jobs'?" in found.stderr
    assert len(found.stderr.strip().splitlines()) == 1


def test_figures_of_gpus_have_the_names_that_rules_may_use(tmp_path: Path) -> None:
    telemetry = GpuTelemetry(tmp_path, [], 0.0, 1.0)
    found = {family.name for family in gpu_metrics(cast("GpuMonitor", SimpleNamespace(telemetry=telemetry)))}

    assert found == {name for name in SCRAPED if name.startswith(("DCGM_", "rota_gpu_up"))}
