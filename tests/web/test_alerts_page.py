"""The page of alerts in a real browser: what fires is shown, taken and silenced; rights are those of tenants."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from accounts.test_usage import client_of
from managers import Manager, eventually
from web.browsers import window
from web.test_access import log_in

pytestmark = pytest.mark.slow


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    rule = {
        "name": "waits",
        "when": "rota_queue_wait_seconds > 0.1",
        "severity": "critical",
        "message": "{tenant} waits",
    }
    config = tmp_path / "rota.yaml"
    config.write_text(json.dumps({"health": {"checks": []}, "alerts": {"every": "100ms", "rules": [rule]}}))
    made = Manager(tmp_path, "--emulate", "gpu=1/1", "--config", str(config), "--require-token").start_guarded()
    yield made
    made.clean_up()


def test_alerts_are_shown_taken_and_silenced(chromium: Browser, manager: Manager) -> None:
    job = {"run": "sleep 600", "tenant": "nlp", "workdir": str(manager.folder), "resources": {"gpus": 1}}
    manager.client.submit([{**job, "name": "first"}, {**job, "name": "second"}])
    eventually(lambda: [row for row in manager.client.alerts() if row["state"] == "firing"])
    desk = window(chromium, manager)
    log_in(desk, manager.token)
    page = desk.go("/alerts")
    row = page.get_by_role("table", name="Alerts").get_by_role("row", name="nlp waits")
    expect(row).to_contain_text("firing · critical")

    row.get_by_role("button", name="Take").click()
    expect(row).to_contain_text("taken by")
    row.get_by_role("button", name="Silence").click()
    page.get_by_role("dialog").get_by_role("button", name="Silence for an hour").click()
    expect(row).to_contain_text("silenced")
    silences = page.get_by_role("table", name="Silences")
    expect(silences).to_contain_text("waits")
    silences.get_by_role("button", name="End").click()
    expect(silences).to_have_count(0)
    expect(row).not_to_contain_text("silenced")
    manager.client.act("1", "cancel")
    expect(row).to_contain_text("resolved")
    assert desk.errors == []

    for tenant, sees in (("nlp", True), ("vision", False)):
        found = client_of(manager, f"of-{tenant}", "viewer", tenant).alerts()
        assert bool([each for each in found if each["rule"] == "waits"]) == sees
