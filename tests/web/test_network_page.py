"""The page of the network in a real browser: topology and load of links while a job sends, and after it ended."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from managers import Manager
from web.browsers import Window, window

pytestmark = pytest.mark.slow
NETWORK = "topology: fat-tree\nper_leaf: 2\nspines: 1\nlink: 10Gbps\n"
LONG_MS = 60_000


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    """Four nodes with one device each, two below each leaf."""
    folder = tmp_path_factory.mktemp("network")
    file = folder / "net.yaml"
    file.write_text(NETWORK)
    made = Manager(folder, "--emulate", "gpu=4/1", "--network", str(file))
    made.start(within_s=90)
    try:
        yield made
    finally:
        made.clean_up()


@pytest.fixture(scope="module")
def desk(chromium: Browser, manager: Manager) -> Window:
    return window(chromium, manager)


def test_page_shows_topology_and_the_load_of_links_over_time(desk: Window, manager: Manager) -> None:
    page = desk.go("/")
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Network").click()
    topology = page.get_by_role("table", name="Topology")
    expect(topology.get_by_role("row", name="leaf and node")).to_have_text(re.compile(r"4\s*10\s*40$"))
    expect(page.get_by_text("No job has sent anything")).to_be_visible()

    labels = {"compute_s": "0.5", "comm_bytes": "1e9", "overlap": "0"}
    job = manager.submit("sleep 600", workers=4, resources={"gpus": 1}, labels=labels)
    manager.wait(job, "running")
    links = page.get_by_role("table", name="Links in use")
    row = links.get_by_role("row", name=re.compile("n1.*leaf"))
    # a ring of four sends 1.5 GB in 1.2 s at 10 Gbit/s, and computes for 0.5 s: 1.2 / 1.7
    expect(row.first).to_contain_text("70.6 %", timeout=LONG_MS)

    manager.client.act(job, "cancel")
    manager.wait(job, "cancelled")
    expect(row.first.get_by_role("cell").nth(1)).to_have_text("0.0 %", timeout=LONG_MS)
    expect(row.first).to_contain_text("70.6 %")
    expect(page.get_by_role("img", name="Load of the busiest links")).to_be_visible()
    assert desk.errors == []
    assert desk.foreign_requests() == []
