"""A user opens a notebook on an emulated GPU in a browser and runs a cell, by JupyterLab where it is installed."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, TimeoutError, expect

from managers import Manager, eventually
from web.browsers import window

pytestmark = pytest.mark.slow
CELL = "import os; print('answer', 6 * 7, os.environ['CUDA_VISIBLE_DEVICES'], os.environ['ROTA_JOB_ID'])"
STARTS_MS = 180_000
RUNS_MS = 20_000


def runs_cell(page: Page) -> bool:
    """Write the cell and run it; return whether that shows. JupyterLab may draw the cell again meanwhile, empty."""
    cell = page.locator(".jp-Notebook .cm-content").first
    cell.fill(CELL)
    cell.press("Shift+Enter")
    with suppress(TimeoutError):
        page.locator(".jp-OutputArea-output pre").first.wait_for(timeout=RUNS_MS)
        return True
    return False


def test_a_cell_runs_on_the_devices_of_the_job(chromium: Browser, tmp_path: Path) -> None:
    if shutil.which("jupyter-lab") is None:
        pytest.skip("jupyter-lab is not installed; pip install jupyterlab")
    manager = Manager(tmp_path, "--emulate", "gpu=4/4").start()
    try:
        first = manager.submit("sleep 600", resources={"gpus": 2})
        manager.wait(first, "running")
        ran = manager.rota("notebook", "--gpus", "1")
        assert ran.returncode == 0, ran.stderr
        url = ran.stdout.strip()
        job_id = url.split("/proxy/")[1].split("/")[0]

        desk = window(chromium, manager)
        desk.page.goto(url)
        page = desk.page
        page.locator(".jp-LauncherCard[data-category='Notebook']").first.click(timeout=STARTS_MS)
        page.wait_for_selector(
            ".jp-Notebook-ExecutionIndicator[data-status='idle']", timeout=STARTS_MS, state="attached"
        )
        eventually(lambda: runs_cell(page), within_s=STARTS_MS / 1000)
        expect(page.locator(".jp-OutputArea-output pre").first).to_have_text(f"answer 42 2 {job_id}")

        manager.client.act(job_id, "cancel")
        manager.wait(job_id, "cancelled")
    finally:
        manager.clean_up()
