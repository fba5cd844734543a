"""A day of a user: log in, submit a template with a data set, watch it, stop it, run a sweep, read the usage."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

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


@pytest.fixture
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    """A manager that asks for tokens, with eight emulated devices."""
    made = Manager(tmp_path_factory.mktemp("walk"), "--emulate", "gpu=8/4", "--require-token").start_guarded()
    yield made
    made.clean_up()


def test_a_user_walks_from_the_login_to_the_usage(chromium: Browser, manager: Manager) -> None:
    token = manager.client.post("/tokens", {"name": "ada", "role": "member", "tenants": ["nlp"]})["token"]
    ada = Client(manager.client.url, token)
    script = manager.folder / "train.py"
    script.write_text(TRAIN)
    desk = window(chromium, manager)

    page = desk.go("/home")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_selector("h1")
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
    expect(page.get_by_role("link", name=re.compile("first-training"))).to_contain_text(re.compile(r"step \d+"))
    desk.go("/timeline?span=60")
    expect(page.get_by_role("table", name="Jobs in this window").locator("tbody tr")).to_contain_text("first-training")
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name=re.compile("^Search")).fill("first")
    expect(page.get_by_role("option")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("first-training")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.locator(".page-head .chip")).to_have_text("cancelled")

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
    assert desk.errors == []
