"""The reproductions page: every measured table names its script and is written by that script alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import reproduce
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


def test_what_was_measured_is_not_measured_again_to_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second script fails at first; resumed, the first is not run again, and both tables are on the page."""
    page, scripts = tmp_path / "page.md", tmp_path / "scripts"
    scripts.mkdir()
    page.write_text("<!-- measured: a -->\n\n| x |\n\n<!-- measured: b -->\n\n| y |\n")
    (scripts / "a.py").write_text(f"print('| runs |'); open({str(tmp_path / 'runs')!r}, 'a').write('a')")
    (scripts / "b.py").write_text("raise SystemExit(1)")
    for name, path in (("PAGE", page), ("SCRIPTS", scripts), ("ROOT", tmp_path), ("KEPT", tmp_path / "kept")):
        monkeypatch.setattr(reproduce, name, path)
    with pytest.raises(subprocess.CalledProcessError):
        reproduce.main([])
    assert "| runs |" in page.read_text()
    (scripts / "b.py").write_text("print('| z |')")

    reproduce.main([], resume=True)

    assert page.read_text() == "<!-- measured: a -->\n\n| runs |\n\n<!-- measured: b -->\n\n| z |\n"
    assert (tmp_path / "runs").read_text() == "a"


def test_script_that_lacks_what_it_needs_is_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = {path.stem: path.read_text(encoding="utf-8") for path in SCRIPTS.glob("*.py")}
    monkeypatch.delenv("ROTA_DATA", raising=False)
    monkeypatch.setattr(reproduce, "find_spec", lambda name: None)

    found = {name: why for name, text in needs.items() if (why := reproduce.lacking(text))}

    assert found.pop("learned_placement") == "it needs PyTorch: pip install 'rota[learn]'"
    assert set(found.values()) == {"ROTA_DATA is not set"}
    assert "gavel_published" in found
    monkeypatch.setenv("ROTA_DATA", "here")
    monkeypatch.setattr(reproduce, "find_spec", lambda name: name)
    assert not any(map(reproduce.lacking, needs.values()))


def test_scripts_that_do_not_exist_are_named() -> None:
    with pytest.raises(SystemExit, match="unknown script 'elastc'; choose from elastic"):
        reproduce.main(["elastc"])
