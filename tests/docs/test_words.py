"""The check of words finds what it should, and nothing in the sources and pages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import words


@pytest.mark.slow
def test_sources_and_pages_use_none_of_the_refused_words() -> None:
    found = [str(finding) for path in words.tracked(words.SCOPE) for finding in words.in_file(path)]

    assert found == []


def test_scope_exists_and_leaves_out_only_the_list_of_words() -> None:
    assert [place for place in words.SCOPE if not (words.ROOT / place).exists()] == []
    tools = {path.name for path in words.tracked(["tools"])}
    assert tools == {path.name for path in (words.ROOT / "tools").rglob("*.py")} - {"words.py"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Nobody waits.", ["Nobody"]),
        ("devices that can\nbe had", ["be had"]),
        ("a job who waits", ["who"]),
        ("the user who submitted it", []),
        ("pre-emptions and preemptions", ["pre-emptions"]),
        ("the option `--pretend` of another system", []),
        ("a wholesome anewer", []),
        ("see https://example.org/who/nobody", []),
    ],
)
def test_refused_words_are_found_in_prose(text: str, found: list[str]) -> None:
    assert [word for _, word, _ in words.in_prose(text)] == found


def test_module_is_read_by_its_prose_and_its_names() -> None:
    source = '''"""Tell
whoever asks."""
nobody_waits = "seats"  # placed
# anew
key = "wishes"
text = f"{key} somebody's"
'''

    found = sorted((line + 1, word) for line, word, _ in words.in_python(source))

    assert found == [(2, "whoever"), (3, "nobody_waits"), (4, "anew"), (6, "somebody")]


def test_only_the_newest_section_of_the_changelog_is_read(tmp_path: Path) -> None:
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text("# Changes, anew\n\n## [Unreleased]\n\n- anew\n\n## [0.1]\n\n- anew\n", encoding="utf-8")

    assert [(finding.line, finding.word) for finding in words.in_file(changelog, tmp_path)] == [(5, "anew")]


def test_output_of_commands_is_not_read(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ rota ps\nnobody\n```\n\n```sh\nrota ps  # nobody\n```\n", encoding="utf-8")

    assert [(finding.line, finding.word) for finding in words.in_file(page, tmp_path)] == [(7, "nobody")]


def test_finding_names_the_place_the_word_and_a_better_one(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("planned\nanew\n", encoding="utf-8")

    assert [str(finding) for finding in words.in_file(page, tmp_path)] == [
        "page.md:2: 'anew'; write: again; from scratch"
    ]


def test_tool_fails_and_names_the_place() -> None:
    tool = [sys.executable, str(words.ROOT / "tools/words.py"), "tests/docs/test_words.py"]

    answer = subprocess.run(tool, capture_output=True, text=True)

    assert answer.returncode == 1
    assert "tests/docs/test_words.py:" in answer.stdout
