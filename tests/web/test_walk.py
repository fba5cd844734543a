"""A day of a user: log in, submit a template with a data set, watch it, be told of it, run a sweep, read the usage."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from accounts.receivers import Web, mail_server, web_server
from managers import Manager, eventually
from rota.sdk.client import Client
from web.browsers import window

pytestmark = pytest.mark.slow
TRAIN = """
import time
import rota.sdk
run = rota.sdk.steps(range(100000))
for batch in run:
    time.sleep(0.02)
    run.report(loss=1 / (2 + run.step))
"""
LINES = "for i in 1 2 3; do echo step $i loss $ROTA_PARAM_X; sleep 0.05; done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A manager that asks for tokens, with eight emulated devices, and those that it tells."""

    manager: Manager
    web: Web
    mails: list[Message]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with web_server() as web, mail_server() as (mails, port):
        settings = {
            "notifications": {
                "smtp": {"host": "127.0.0.1", "port": port, "from": "rota@example.org"},
                "user_email": "{user}@example.org",
                "channels": {"ops": {"webhook": f"http://127.0.0.1:{web.port}/ops"}},
            },
            "alerts": {
                "every": "200ms",
                "rules": [
                    {
                        "name": "long-training",
                        "when": 'job_run_seconds{name="first-training"} > 1',
                        "message": "{name} of {user} runs for long",
                        "to": ["ops"],
                    }
                ],
            },
        }
        config = tmp_path / "rota.yaml"
        config.write_text(json.dumps(settings))
        options = ("--emulate", "gpu=8/4", "--require-token", "--config", str(config))
        manager = Manager(tmp_path, *options).start_guarded()
        try:
            yield Server(manager=manager, web=web, mails=mails)
        finally:
            manager.clean_up()


def test_a_user_walks_from_the_login_to_the_usage(chromium: Browser, server: Server) -> None:
    manager = server.manager
    token = manager.client.post("/tokens", {"name": "ada", "role": "member", "tenants": ["nlp"]})["token"]
    ada = Client(manager.client.url, token)
    script = manager.folder / "train.py"
    script.write_text(TRAIN)
    desk = window(chromium, manager)

    page = desk.go("/home")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/home")
    desk.go("/home")
    expect(page.get_by_text("You have no active jobs.")).to_be_visible()

    texts = manager.folder / "texts"
    texts.mkdir()
    (texts / "part").write_text("read from the data set\n")
    manager.client.put_data_set("texts", {"path": str(texts), "tenants": ["nlp"]})
    template = {
        "description": "trains on texts",
        "parameters": {"gpus": {"type": "integer", "default": 1}},
        "job": {
            "name": "first-training",
            "data": ["texts"],
            "notify": ["end"],
            "run": f"cat $ROTA_DATA_TEXTS/part; exec {sys.executable} {script}",
            "resources": {"gpus": "{{ gpus }}"},
        },
    }
    manager.client.put_template("train", template, tenant="nlp")
    desk.go("/templates?name=train&tenant=nlp")
    page.get_by_label("gpus", exact=True).fill("2")
    expect(page.get_by_role("region", name="Job file")).to_contain_text("gpus: 2")
    page.get_by_role("button", name="Submit").click()
    page.get_by_role("dialog").get_by_role("button", name="Submit").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("first-training")
    expect(page.locator(".page-head .chip")).to_have_text("running")
    expect(page.get_by_role("log")).to_contain_text("read from the data set")
    expect(page.get_by_text(re.compile(r"step \d+, .* steps/s, loss 0\.\d+"))).to_be_visible()
    expect(page.get_by_role("img", name="Metrics reported by the job, by step").locator("svg")).to_be_visible()

    desk.go("/home")
    expect(page.get_by_role("link", name=re.compile("running first-training"))).to_contain_text(re.compile(r"step \d+"))
    desk.go("/timeline?span=60")
    expect(page.get_by_role("table", name="Jobs in this window").locator("tbody tr")).to_contain_text("first-training")
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name=re.compile("^Search")).fill("first")
    expect(page.get_by_role("option")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("first-training")
    eventually(lambda: [post["rule"] for post in server.web.bodies("/ops")] == ["long-training"])
    assert "first-training of ada runs for long" in server.web.posts[0][2]
    desk.go("/alerts")
    expect(page.get_by_role("main").last).to_contain_text("first-training of ada runs for long")
    desk.go("/jobs/1")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.locator(".page-head .chip")).to_have_text("cancelled")
    eventually(lambda: server.mails)
    assert server.mails[0]["To"] == "ada@example.org"
    assert "first-training" in server.mails[0]["Subject"]

    sweep = ada.start_sweep(
        {
            "name": "search",
            "tenant": "nlp",
            "parameters": {"x": {"uniform": [0.1, 0.9]}},
            "trials": 6,
            "objective": {"log": "step {step} loss {value}"},
            "job": {"run": LINES, "resources": {"gpus": 1}},
        }
    )["id"]
    eventually(lambda: ada.sweep(sweep)["state"] == "finished")
    desk.go("/sweeps")
    page.get_by_role("link", name="search").click()
    expect(page.get_by_role("table", name="Trials").locator("tbody tr")).to_have_count(6)

    used = ada.usage("user")["rows"]
    assert [row["user"] for row in used] == ["ada"]
    assert used[0]["gpu_hours"] > 0
    desk.go("/usage")
    row = page.get_by_role("table", name="Usage").locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row.locator("td").first).to_have_text("ada")
    expect(row.locator("td").nth(4)).to_have_text("7")
    desk.go("/data-sets")
    expect(page.get_by_role("table", name="Data sets")).to_contain_text("texts")
    assert desk.errors == []
