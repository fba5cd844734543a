"""axe-core finds nothing serious on any page, in light and in dark."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page

from managers import Manager, eventually
from rota.web.site import PAGES
from web.browsers import window

pytestmark = pytest.mark.slow
FOLDER = Path(__file__).parents[2] / "build" / "axe"
SCRIPT = FOLDER / "node_modules" / "axe-core" / "axe.min.js"
PATHS = [
    path.format(job_id=job, sweep_id="s1")
    for path, _, _ in PAGES
    for job in (("1", "2") if "{job_id}" in path else ("",))
] + ["/compare?jobs=1,2,3"]
SERIOUS = ("serious", "critical")


@functools.cache
def axe() -> str:
    """Return the checker's script, from npm; the test is skipped where it is not available."""
    if not SCRIPT.exists() and shutil.which("npm"):
        FOLDER.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--prefix", str(FOLDER), "--no-audit", "--no-fund", "axe-core@4"]
        subprocess.run(command, capture_output=True, timeout=120, check=False)
    if not SCRIPT.exists():
        pytest.skip("axe-core is not here, and npm can't fetch it")
    return SCRIPT.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    made = Manager(tmp_path_factory.mktemp("axe"), "--emulate", "gpu=4/2").start()
    made.submit("echo something; sleep 100", name="runs", resources={"gpus": 4})
    made.submit("sleep 1", name="waits", resources={"gpus": 2})
    made.submit("exit 1", name="fails")
    eventually(lambda: made.state("3") == "failed")
    lines = "for i in 1 2 3; do echo $i $ROTA_PARAM_X; done"
    values = {"parameters": {"x": {"uniform": [0, 1]}}, "trials": 6, "objective": {"log": "{step} {value}"}}
    made.client.start_sweep({**values, "name": "search", "job": {"run": lines}})
    eventually(lambda: made.client.sweep("s1")["state"] == "finished")
    yield made
    made.clean_up()


def faults(page: Page, only: Sequence[str] | None = SERIOUS) -> list[Any]:
    """Return the violations on a page that axe rates as serious or worse, or as one of these; None for all."""
    page.evaluate(axe())
    result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        (each["id"], [node["html"][:160] for node in each["nodes"]][:4])
        for each in result["violations"]
        if only is None or each["impact"] in only
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_serious_keeps_people_out(
    chromium: Browser, manager: Manager, scheme: Literal["light", "dark"]
) -> None:
    desk = window(chromium, manager, scheme=scheme)
    found: dict[str, list[Any]] = {}
    for path in PATHS:
        page = desk.go(path)
        page.wait_for_timeout(700)
        found[path] = faults(page)

    assert {path: serious for path, serious in found.items() if serious} == {}


def test_a_button_without_a_name_would_be_found(chromium: Browser, manager: Manager) -> None:
    page = window(chromium, manager).go("/tenants")
    page.evaluate("document.querySelector('main').append(document.createElement('button'))")

    assert [name for name, _ in faults(page)] == ["button-name"]
