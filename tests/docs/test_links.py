"""Links between pages have targets, and every page is reachable."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.pages import all_pages, anchor, fences, headings, links, name_of

_RULER = re.compile(r"\|[\s:|-]+\|")


@pytest.mark.parametrize("page", [pytest.param(page, id=name_of(page)) for page in all_pages()])
def test_links_lead_to_files_and_headings(page: Path) -> None:
    assert [link for link in links(page) if not _leads_somewhere(page, link)] == []


def _leads_somewhere(page: Path, link: str) -> bool:
    if link.startswith(("https://", "http://", "mailto:")):
        return True
    name, _, wanted = link.partition("#")
    target = page if not name else page.parent / name
    if not target.exists():
        return False
    return not wanted or wanted in {anchor(text) for _, text in headings(target)}


def test_every_page_can_be_reached_from_the_readme() -> None:
    pages = all_pages()
    reached = {pages[0].resolve()}
    new = [pages[0]]
    while new:
        page = new.pop()
        for link in links(page):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.is_file() and target not in reached:
                reached.add(target)
                new.append(target)

    assert [name_of(page) for page in pages if page.resolve() not in reached] == []


@pytest.mark.parametrize("page", [pytest.param(page, id=name_of(page)) for page in all_pages()])
def test_tables_are_whole(page: Path) -> None:
    """A blank line in the middle, or none before the head, makes text with bars of a table."""
    lines = page.read_text(encoding="utf-8").splitlines()
    fenced = {number for _, _, begin, end in fences(lines) for number in range(begin, end)}
    heads = [
        number
        for number, line in enumerate(lines)
        if line.startswith("|") and number not in fenced and not lines[number - 1].startswith("|")
    ]

    broken = [
        lines[each]
        for each in heads
        if (lines[each - 1].strip() and not lines[each - 1].endswith("-->")) or not _RULER.fullmatch(lines[each + 1])
    ]

    assert broken == []
