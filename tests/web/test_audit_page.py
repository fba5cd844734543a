"""The pages of the audit log in a real browser, and its verification."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from managers import Manager
from web.browsers import window

pytestmark = pytest.mark.slow


def test_audit_log_has_pages_and_is_verified(chromium: Browser, tmp_path: Path) -> None:
    manager = Manager(tmp_path, "--emulate", "gpu=1/1").start()
    try:
        manager.client.drain("n1")
        manager.client.submit([{"run": "true", "name": f"job-{number}"} for number in range(70)])
        desk = window(chromium, manager)
        page = desk.go("/audit-log")
        rows = page.get_by_role("table", name="Audit log").locator("tbody tr")
        newer, older = (page.get_by_role("button", name=name) for name in ("Newer", "Older"))
        expect(rows).to_have_count(50)
        expect(rows.first).to_contain_text("job-69")
        expect(newer).to_be_disabled()

        older.click()

        expect(rows).to_have_count(22)
        expect(rows.nth(-2)).to_contain_text("drain")
        expect(older).to_be_disabled()
        manager.submit("true", name="later")
        newer.click()
        expect(rows.first).to_contain_text("later")
        page.get_by_role("button", name="Verify").click()
        expect(page.get_by_text("73 entries, unbroken")).to_be_visible()
        assert desk.errors == []
    finally:
        manager.clean_up()
