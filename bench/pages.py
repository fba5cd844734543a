"""Wall-clock time of the dashboard's pages with 10,000 jobs, and of writing and opening a report of 82,000 jobs.

    .venv/bin/python bench/pages.py

Every load has an empty browser cache; the first one is also the first of the manager.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from playwright.sync_api import Browser, expect

from managers import Manager
from report.histories import large_run
from rota.report.html import write_report
from web.browsers import browser
from web.test_pages import PAGES, crowd, load_s
from web.test_report import JOBS, drawing

LOADS = 5


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="rota-pages-") as folder, browser() as opened:
        measure_pages(opened, Path(folder))
        measure_report(opened, Path(folder))


def measure_pages(opened: Browser, folder: Path) -> None:
    manager = Manager(folder, "--emulate", "gpu=16/4").start()
    try:
        crowd(manager)
        manager.kill()
        manager.start()
        print(f"first page after a start  {load_s(opened, manager, 'Overview'):5.2f} s")
        print(f"{'page':<26}{'median':>7}{'longest':>9}")
        for title in PAGES:
            taken = [load_s(opened, manager, title) for _ in range(LOADS)]
            print(f"{title:<26}{statistics.median(taken):5.2f} s{max(taken):7.2f} s")
    finally:
        manager.kill()
        manager.clean_up()


def measure_report(opened: Browser, folder: Path) -> None:
    path = folder / "report.html"
    runs = [large_run(name, JOBS, 3) for name in ("fifo", "srtf", "las")]
    begun_s = time.monotonic()
    write_report(path, runs, "rota sim", {})
    taken_s = time.monotonic() - begun_s
    print(f"report of 3 x {JOBS:,} jobs: {path.stat().st_size / 1e6:.1f} MB, written in {taken_s:.1f} s")
    for _ in range(3):
        page = opened.new_context(offline=True, viewport={"width": 1280, "height": 800}).new_page()
        begun_s = time.monotonic()
        page.goto(path.as_uri())
        expect(drawing(page.locator("div.plot").first)).to_be_visible(timeout=30_000)
        print(f"opened, first figure drawn, in {time.monotonic() - begun_s:.2f} s")
        page.context.close()


if __name__ == "__main__":
    main()
