"""The documentation site builds without warnings, is whole without a network, and leads newcomers to what they want."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urldefrag, urljoin

import pytest
from build_site import build, list_versions

from docs.pages import ROOT, anchor, headings, links, section
from docs.python_page import page as python_page
from rota import __version__
from web.browsers import browser
from web.test_accessibility import faults

TASKS = ROOT / "docs/start/tasks.md"
MOST_CLICKS = 3


class Elements(HTMLParser):
    """The links of a page, what a browser loads with it, and the kinds of elements in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.kinds: set[tuple[str, str | int]] = set()
        self.places: list[str] = []
        """The names of what screen readers offer to go to."""
        self._columns = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep addresses by what they are for, and kinds: tags with their classes, rows by their columns."""
        given = dict(attrs)
        self.kinds |= {(tag, name) for name in (given.get("class") or "").split() or [""]}
        self.kinds |= {(tag, name) for name, _ in attrs if name in ("style", "role", "fill", "type")}
        self._columns = 0 if tag == "tr" else self._columns + (tag == "td")
        self.kinds.add(("columns", self._columns))
        if tag == "nav" and given.get("aria-label"):
            self.places.append(str(given["aria-label"]))
        if tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))
        elif tag in ("script", "img", "iframe") and given.get("src"):
            self.loaded.append(str(given["src"]))
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon", "preconnect") and given.get("href"):
            self.loaded.append(str(given["href"]))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    mkdocs = pytest.importorskip("mkdocs", reason="MkDocs is not installed: pip install 'rota[docs]'")
    assert mkdocs
    folder = tmp_path_factory.mktemp("site")
    build(folder, __version__)
    return folder / __version__


def _pages(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.html"))


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    foreign = {
        (page.relative_to(site).as_posix(), address)
        for page in _pages(site)
        for address in Elements(page.read_text(encoding="utf-8")).loaded
        if re.match(r"(?:https?:)?//", address)
    }

    assert len(_pages(site)) > 100
    assert foreign == set()


@pytest.mark.slow
def test_each_of_ten_tasks_is_at_most_three_clicks_away(site: Path) -> None:
    """From the home page, by links of its text and its navigation."""
    distance = {"index.html": 0}
    queue = ["index.html"]
    while queue:
        here = queue.pop(0)
        if distance[here] == MOST_CLICKS:
            continue
        for link in Elements((site / here).read_text(encoding="utf-8")).links:
            there = urldefrag(urljoin(here, link)).url
            if there not in distance and (site / there).is_file():
                distance[there] = distance[here] + 1
                queue.append(there)
    wanted = [urljoin("start/", urldefrag(link).url).removesuffix(".md") + ".html" for link in links(TASKS)]

    assert len(wanted) >= 10
    assert [page for page in wanted if page not in distance] == []


def test_each_task_is_done_by_commands_that_the_tests_run() -> None:
    """What a task links to, a page or a section of it, shows commands in the form that test_examples.py runs."""
    without = []
    for link in links(TASKS):
        address, mark = urldefrag(link)
        page = (TASKS.parent / address).resolve()
        text = page.read_text(encoding="utf-8")
        if mark:
            (heading,) = [heading for _, heading in headings(page) if anchor(heading) == mark]
            text = section(page, heading)
        if not re.search(r"^```console\n\$ rota ", text, re.MULTILINE):
            without.append(link)

    assert without == []


@pytest.mark.slow
def test_no_page_has_two_sections_of_one_name_to_go_to(site: Path) -> None:
    """The theme has each place twice at most, of which a browser shows one."""
    found = {page: Counter(Elements(page.read_text(encoding="utf-8")).places) for page in _pages(site)}
    again = {(page.name, name) for page, places in found.items() for name, count in places.items() if count > 2}

    assert again == set()


def _of_each_kind(site: Path) -> list[Path]:
    """Return few pages that together have every kind of element of the site."""
    kinds = {page: Elements(page.read_text(encoding="utf-8")).kinds for page in _pages(site)}
    left = set().union(*kinds.values())
    chosen = []
    while left:
        chosen.append(max(kinds, key=lambda page: len(kinds[page] & left)))
        left -= kinds[chosen[-1]]
    return chosen


@pytest.mark.slow
def test_pages_of_each_kind_open_from_the_file_system_and_keep_nobody_out(site: Path) -> None:
    _check(site, _of_each_kind(site), "light")


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_keeps_anybody_out(site: Path, scheme: Literal["light", "dark"]) -> None:
    _check(site, _pages(site), scheme)


def _check(site: Path, pages: Sequence[Path], scheme: Literal["light", "dark"]) -> None:
    """Open pages from files, with axe-core on each, and search."""
    found: dict[str, list[Any]] = {}
    with browser() as chromium:
        window = chromium.new_page(color_scheme=scheme)
        failed: list[str] = []
        window.on("pageerror", lambda error: failed.append(str(error)))
        for path in pages:
            window.goto(path.as_uri())
            found[path.relative_to(site).as_posix()] = [
                *faults(window, only=None),
                *(["not one title"] if window.locator("h1").count() != 1 else []),
            ]
        assert {name: what for name, what in found.items() if what} == {}

        window.locator("input.md-search__input").press_sequentially("preemption guard")  # it listens to keys
        window.locator(".md-search-result__item").first.wait_for()
        bar = window.locator(".md-header").evaluate("element => getComputedStyle(element).backgroundColor")

        assert bar == "rgb(11, 79, 121)"  # the style sheets were found
        assert failed == []


def test_public_names_are_those_of_the_reference() -> None:
    """A public name or parameter that changes shows here first; tests/docs/rewrite.py updates the page."""
    assert (ROOT / "docs/reference/python.md").read_text(encoding="utf-8") == python_page()


@pytest.mark.slow
def test_other_versions_are_kept_and_offered(site: Path) -> None:
    old = site.parent / "0.0.9" / "index.html"
    old.parent.mkdir()
    old.write_text("<h1>Rota 0.0.9</h1>", encoding="utf-8")

    assert list_versions(site.parent) == [__version__, "0.0.9"]
    with browser() as chromium:
        window = chromium.new_page()
        window.goto((site.parent / "index.html").as_uri())
        window.wait_for_url(f"**/{__version__}/index.html")
        window.goto((site / "policies/las.html").as_uri())
        choice = window.get_by_label("Version of these pages")
        assert choice.locator("option").all_inner_texts() == [__version__, "0.0.9"]
        assert faults(window, only=None) == []
        choice.select_option("0.0.9")
        window.wait_for_url("**/0.0.9/index.html")


def test_versions_are_sorted_by_their_numbers(tmp_path: Path) -> None:
    for name in ("0.2.0", "0.10.0", "0.10.0.dev1", "assets"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").touch()

    assert list_versions(tmp_path) == ["0.10.0", "0.10.0.dev1", "0.2.0"]
    assert "0.10.0/index.html" in (tmp_path / "index.html").read_text(encoding="utf-8")
