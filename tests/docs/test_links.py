"""Links between pages have targets, and every page is reachable."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.pages import all_pages, anchor, headings, links, name_of


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
