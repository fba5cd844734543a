"""Small inputs that become large, or take long, in the parts of the manager that read what users and jobs wrote."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from live.test_search_index import JobRow, Rows, index
from rota.core.errors import RotaError
from rota.files.templates import filling
from rota.files.templates.template_file import MOST_JOBS, MOST_OF_ARRAY, template_file
from rota.live.data import search_read
from rota.store.data import snapshots
from rota.store.data.snapshots import Snapshots
from rota.sweeps.log_pattern import LONGEST_LINE, compiled, found_in

attack = pytest.mark.attack
MOST_S = 1.0
"""CPU time, a hundred times what it takes and a hundredth of what it took."""


def cpu_s(work: Callable[[], object]) -> float:
    begun_s = time.process_time()
    work()
    return time.process_time() - begun_s


@attack(
    "holds the manager up by a line of its output that a sweep's pattern matches in many ways",
    stopped_by="no part of a pattern gives back what it has matched",
)
@pytest.mark.parametrize("pattern", [" {any} {value}", "{any}{value}x", "{any} {step} {value} x", "{step}{any}{value}"])
def test_no_line_takes_a_pattern_long(pattern: str) -> None:
    texts = (" ", "1", "1 ", ".1", "1e", "-", "a1 ", "nan ")
    lines = [(text * LONGEST_LINE)[:LONGEST_LINE] for text in texts]

    assert cpu_s(lambda: list(found_in(lines, compiled(pattern)))) < MOST_S


def repeating(**parts: Any) -> dict[str, Any]:
    return {"description": "it repeats", "parameters": {"a": {"default": "x"}}, **parts}


@attack(
    "fills a template with a long value that it repeats ten thousand times, or in a thousand jobs",
    stopped_by="what is filled in is counted, and bounded",
)
@pytest.mark.parametrize("value", ["'" * 65_000, "x" * 65_000])
def test_templates_do_not_amplify(value: str) -> None:
    again = template_file(repeating(job={"run": "{{a}} " * 10_000}))
    in_many = template_file(repeating(job={"run": "{{a}}"}, array=MOST_JOBS))
    as_values = template_file(repeating(job={"run": "x", "labels": {f"l{n}": "{{a}}" for n in range(60)}}))

    for template in (again, in_many, as_values):
        with pytest.raises(RotaError, match=f"{filling.MOST_FILLED >> 20} MiB|{MOST_OF_ARRAY >> 20} MiB"):
            template.filled({"a": value})


@attack(
    "gives a template a value that ends the quotes around its place, and goes on with a command",
    stopped_by="places in quotes are refused where the template is added",
)
@pytest.mark.parametrize(
    "command", ["echo '{{a}}'", 'echo "{{a}}"', "echo 'it''s {{ a }}'", "python -c \"x = '{{a}}'\""]
)
def test_places_in_quotes_are_refused(command: str) -> None:
    with pytest.raises(RotaError, match="stands in quotes"):
        template_file(repeating(job={"run": command}))


@pytest.mark.parametrize(
    "command", ["echo 'x' {{a}} \"y\"", "# don't\necho {{a}}", "echo \\' {{a}}", "echo x#'y' {{a}}"]
)
def test_places_beside_quotes_are_taken(command: str) -> None:
    filled = template_file(repeating(job={"run": command})).filled({"a": "b; c"})

    assert filled["jobs"][0]["run"] == command.replace("{{a}}", "'b; c'")


@attack("gives a number in another base, with underscores or in other digits", stopped_by="numbers are decimal")
@pytest.mark.parametrize("given", ["010", "1_0", "0x10", "1:30", "٣", "²", "1e99999", "9" * 5000, "--1", "+ 1"])
def test_numbers_of_templates_are_decimal(given: str) -> None:
    template = template_file(
        {"description": "d", "parameters": {"n": {"type": "integer", "default": 1}}, "job": {"run": "x {{n}}"}}
    )

    with pytest.raises(RotaError, match=r"n is .*; it must be a whole number"):
        template.filled({"n": given})
    assert template.filled({"n": "9007199254740993"})["jobs"][0]["run"] == "x 9007199254740993"


@attack(
    "fills its output with one word and searches for it, again and again in one query",
    stopped_by="excerpts are cut out in one pass; a search has a time limit",
)
def test_repeated_words_do_not_hold_searches_up(tmp_path: Path) -> None:
    rows = Rows([JobRow(id=str(n), seq=n, name="job", owner="eve", message="a " * 50_000) for n in range(3)])
    searched = index(tmp_path, rows)
    searched.refresh()
    found: list[Any] = []

    assert cpu_s(lambda: found.extend(searched.search("a " * 16, None, 9))) < MOST_S
    assert {match.field for match in found} == {"message"}
    assert all(len(match.excerpt) < 300 for match in found)


@attack("searches for what takes long to find", stopped_by="a search has a time limit")
def test_searches_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows([JobRow(id=str(n), seq=n, name="job", message="a b c " * 1000) for n in range(100)])
    searched = index(tmp_path, rows)
    while searched.refresh():
        pass
    monkeypatch.setattr(search_read, "MOST_S", 0.0)
    monkeypatch.setattr(search_read, "STEPS", 10)

    with pytest.raises(RotaError, match="the search took more than 0 s; give rarer words"):
        searched.search("a b c", None, 9)
    monkeypatch.setattr(search_read, "MOST_S", 60.0)
    assert len(searched.search("a b c", None, 9)) == 9


def test_excerpts_are_the_text_around_what_matches(tmp_path: Path) -> None:
    rows = Rows([JobRow(id="1", seq=1, name="job", message="x " * 300 + "Größe des_Modells: 7" + " y" * 300)])
    searched = index(tmp_path, rows)
    searched.refresh()

    for text in ("grosse grö", "des_mod", "modells 7", "GROßE"):
        found = searched.search(text, None, 9)
        assert [match.field for match in found] in (["message"], []), text
        assert all("Größe des_Modells: 7" in match.excerpt for match in found)
    assert searched.search("grö", None, 9)


@attack("begins a thousand uploads before any is whole, and sends their rest", stopped_by="each part is checked")
def test_parts_of_snapshots_are_counted_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "MOST_OF_TENANT", 1 << 20)
    monkeypatch.setattr(snapshots, "LEFT_FREE", 0.0)
    kept = Snapshots(tmp_path)
    digests = [f"{number:064x}" for number in range(8)]
    for digest in digests:
        kept.receive("nlp", digest, "eve", 0, b"x", 300_000)

    with pytest.raises(RotaError, match="those of tenant nlp hold more than"):
        _ = [kept.receive("nlp", digest, "eve", 1, b"x" * 250_000, 300_000) for digest in digests]
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.part")) <= 1 << 20


@attack("keeps endless empty snapshots, or fills the disk", stopped_by="their number is bounded; some disk stays free")
def test_number_of_snapshots_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "MOST_NUMBER", 3)
    kept = Snapshots(tmp_path)
    for number in range(3):
        kept.receive("nlp", f"{number:064x}", "eve", 0, b"x", 2)

    with pytest.raises(RotaError, match="tenant nlp has 3 already, which is the maximum"):
        kept.receive("nlp", "a" * 64, "eve", 0, b"x", 2)
    monkeypatch.setattr(snapshots, "LEFT_FREE", 2.0)
    with pytest.raises(RotaError, match="the disk has"):
        kept.receive("other", "a" * 64, "eve", 0, b"x", 2)
