"""What is typed into a form stays: at once on a slow page, while another field changes, and over a lost connection."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import pytest
from playwright.sync_api import Browser, Page, WebSocket, WebSocketRoute, expect

from managers import Manager
from ports import free_port
from rota.web.site import PAGES
from web.browsers import Window, window

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    """A manager that has the same address after a restart."""
    options = ("--emulate", "gpu=4/2", "--port", str(free_port()))
    made = Manager(tmp_path_factory.mktemp("typing"), *options).start()
    yield made
    made.clean_up()


class SlowSocket:
    """Keeps back what the manager sends to a page, until it is let go."""

    def __init__(self, page: Page, *, passes: tuple[str, ...]) -> None:
        """Messages that begin with one of `passes` are not kept back."""
        self._passes = passes
        self._kept: list[tuple[WebSocketRoute, str | bytes]] = []
        self._is_open = False
        page.route_web_socket(re.compile("_nicegui_ws"), self._opened)

    def _opened(self, page_side: WebSocketRoute) -> None:
        manager_side = page_side.connect_to_server()

        def came(message: str | bytes) -> None:
            if self._is_open or (isinstance(message, str) and message.startswith(self._passes)):
                page_side.send(message)
            else:
                self._kept.append((page_side, message))

        manager_side.on_message(came)

    def let_go(self) -> None:
        """Deliver what came, and from now on what comes."""
        self._is_open = True
        for page_side, message in self._kept:
            page_side.send(message)


@pytest.mark.parametrize("passes", [(), ("0", "2", "4")], ids=["before the page is live", "before its first message"])
def test_what_is_typed_at_once_stays(chromium: Browser, manager: Manager, passes: tuple[str, ...]) -> None:
    page = window(chromium, manager).page
    socket = SlowSocket(page, passes=tuple(each for each in passes if each != "4") + (("40",) if passes else ()))
    page.goto(f"{manager.client.url}/submit")
    if passes:
        page.wait_for_function("window.did_handshake === true")
    page.get_by_label("Name").fill("typed-at-once")
    page.get_by_label("Command").fill("echo at once")

    socket.let_go()

    expect(page.get_by_label("Job file")).to_have_value(re.compile("name: typed-at-once[^$]*run: echo at once"))
    expect(page.get_by_label("Name")).to_have_value("typed-at-once")
    expect(page.get_by_label("Command")).to_have_value("echo at once")


def _heard(said: list[str], socket: WebSocket) -> None:
    socket.on("framereceived", lambda text: said.append(str(text)))


def test_no_page_sets_a_field_after_it_was_delivered(chromium: Browser, manager: Manager) -> None:
    """Such a message overwrites what a user has typed already."""
    page = window(chromium, manager).page
    found: dict[str, list[str]] = {}
    for path, _, _ in PAGES:
        found[path] = []
        page.once("websocket", partial(_heard, found[path]))
        page.goto(manager.client.url + path.format(job_id="1", sweep_id="s1"))
        page.wait_for_function("window.did_handshake === true")
        page.wait_for_timeout(300)

    assert found["/submit"], "frames are seen"
    assert {path: said for path, said in found.items() if any("updateValue" in text for text in said)} == {}


def typed_draft(desk: Window) -> Page:
    page = desk.go("/submit")
    page.get_by_label("Name").fill("precious")
    expect(page.get_by_label("Job file")).to_have_value(re.compile("name: precious"))
    page.get_by_label("Job file").fill("name: precious\nresources: {gpus: 2}\nrun: echo a long text\n")
    expect(page.get_by_label("GPUs per task")).to_have_value("2")
    page.get_by_label("Priority").fill("7")
    return page


def test_a_page_outlives_a_restart_of_the_manager_with_what_was_typed(chromium: Browser, manager: Manager) -> None:
    page = typed_draft(window(chromium, manager))
    page.evaluate("window.isOld = true")

    manager.kill()
    manager.start()

    page.wait_for_function("window.isOld === undefined && window.did_handshake === true")
    expect(page.get_by_label("Job file")).to_have_value(
        re.compile("name: precious[^$]*echo a long text[^$]*priority: 7")
    )
    for label, value in (
        ("Name", "precious"),
        ("Command", "echo a long text"),
        ("GPUs per task", "2"),
        ("Priority", "7"),
    ):
        expect(page.get_by_label(label, exact=True)).to_have_value(value)
    page.get_by_role("button", name="Dry run").click()
    expect(page.get_by_role("status")).to_contain_text("would start")


def test_a_page_that_its_user_reloads_starts_empty(chromium: Browser, manager: Manager) -> None:
    page = typed_draft(window(chromium, manager))

    page.reload()

    page.wait_for_function("window.did_handshake === true")
    expect(page.get_by_label("Name")).to_have_value("my-job")
    assert page.evaluate("sessionStorage.length") == 0 or "precious" not in page.evaluate(
        "JSON.stringify(sessionStorage)"
    )
