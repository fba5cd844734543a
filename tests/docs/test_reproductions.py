"""The page of reproductions: every measured table says which script measured it, and is filled by that script alone."""

from __future__ import annotations

import pytest
from reproduce import PAGE, SCRIPTS, Misplaced, filled, places, tables

SMALL = """# Page

Text by hand.

<!-- measured: one -->

| a | b |
|---|---|
| 1 | 2 |

Between them.

<!-- measured: other -->

| x |
|---|

<!-- measured: one -->

| a | b |
|---|---|

The end.
"""
PRINTED = """first title

| a | b |
|---|---|
| 5 | 6 |
| 7 | 8 |

second title

| c |
|---|
"""


def test_tables_take_the_places_of_their_script_and_nothing_else_changes() -> None:
    page = filled(SMALL, "one", PRINTED)

    assert page == SMALL.replace("| 1 | 2 |", "| 5 | 6 |\n| 7 | 8 |").replace(
        "| a | b |\n|---|---|\n\nThe end", "| c |\n|---|\n\nThe end"
    )
    assert filled(page, "one", PRINTED) == page


def test_tables_without_a_place_are_refused() -> None:
    with pytest.raises(Misplaced, match="other printed 2 tables; the page has places for 1"):
        filled(SMALL, "other", PRINTED)


def test_every_script_has_its_places() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert set(places(page)) == {path.stem for path in SCRIPTS.glob("*.py")}
    for mark in page.split("<!-- measured: ")[1:]:
        assert mark.split("-->", 1)[1].lstrip("\n").startswith("|")
    for name in set(places(page)):
        own = [tables(part.split("-->", 1)[1])[0] for part in page.split(f"<!-- measured: {name} ")[1:]]
        assert filled(page, name, "\n\n".join("\n".join(each) for each in own)) == page
