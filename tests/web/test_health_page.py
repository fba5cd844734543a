"""The health of nodes on the page of the cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from managers import Manager, eventually
from web.browsers import window

pytestmark = pytest.mark.slow


def test_page_lists_nodes_that_are_not_healthy_with_the_reason(chromium: Browser, tmp_path: Path) -> None:
    (tmp_path / "checks").mkdir()
    program = tmp_path / "checks" / "probe"
    program.write_text(
        '#!/bin/sh\n[ "$ROTA_NODE" = n2 ] || exit 1\necho \'{"status": 2, "text": "a link is down"}\'; exit 2\n'
    )
    program.chmod(0o755)
    (tmp_path / "up.yaml").write_text("health: {every: 1s, checks: [], programs: checks}\n")
    manager = Manager(tmp_path, "--emulate", "gpu=8/4", "--config", str(tmp_path / "up.yaml")).start()
    try:
        eventually(lambda: manager.client.nodes()[1]["health"] == "bad")
        page = window(chromium, manager).go("/cluster")

        row = page.locator(".list-row", has_text="a link is down")
        expect(row).to_contain_text("bad")
        expect(row).to_contain_text("n2")
        expect(page.locator(".list-row", has_text="broken check probe: it ended with")).to_contain_text("healthy")
    finally:
        manager.clean_up()
