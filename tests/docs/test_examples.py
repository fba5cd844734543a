"""The documentation's examples print what the pages show."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from docs.pages import ROOT, Command, Data, Example, File, Needs, Start, agrees, all_pages, examples, name_of
from docs.rewrite import rewrite
from docs.session import Session, run

HOWTO = ROOT / "docs/howto/write-a-policy.md"
SLOW = {"docs/howto/reproduce-published-numbers.md"}


def _cases() -> list[object]:
    return [
        pytest.param(page, id=name_of(page), marks=[pytest.mark.slow] if name_of(page) in SLOW else [])
        for page in all_pages()
        if any(isinstance(example, Command) for example in examples(page))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("page", _cases())
def test_examples_print_what_the_page_says(page: Path, tmp_path: Path) -> None:
    with Session(tmp_path) as session:
        for example in examples(page):
            _check(example, session, page)


def _check(example: Example, session: Session, page: Path) -> None:
    folder = session.folder
    match example:
        case Needs(module=module):
            pytest.importorskip(module, reason=f"{module} is not installed; the rest of the page needs it")
        case Start(options=options):
            session.start(*options)
        case File(name=name, text=text):
            (folder / name).write_text(text, encoding="utf-8")
        case Data(names=names):
            for name in names:
                shutil.copy(_published(name), folder)
        case Command(text=text, output=output, line=line) as command:
            status, printed = session.run(text)
            where = f"{name_of(page)}:{line}: {text}"
            assert agrees(output, printed), (
                f"{where}\nprints now (tests/docs/rewrite.py brings pages up to date):\n" + "\n".join(printed)
            )
            assert (fault := command.fault(status, printed)) is None, f"{where}\n{fault}"


def _published(name: str) -> Path:
    folder = os.environ.get("ROTA_DATA")
    if folder is None or not (Path(folder) / name).exists():
        pytest.skip(f"{name} is not in ROTA_DATA")
    return Path(folder) / name


def test_policies_of_the_howto_are_short() -> None:
    files = {example.name: example.text for example in examples(HOWTO) if isinstance(example, File)}

    assert len(files["mine.py"].splitlines()) <= 20
    assert all(len(text.splitlines()) <= 60 for text in files.values())


def test_howto_has_a_policy_of_each_family_that_the_commands_run() -> None:
    texts = [example.text for example in examples(HOWTO) if isinstance(example, File)]
    commands = " ".join(example.text for example in examples(HOWTO) if isinstance(example, Command))

    for family in ("ordering", "rounds", "selection", "elastic", "colocation", "learned"):
        declared = [re.search(rf"@{family}\(.*\n(?:class|def) (\w+)", text) for text in texts]
        assert any(found and f".py:{found[1]}" in commands for found in declared), family


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        (("a  b",), ["a     b"], True),
        (("a b",), ["a c"], False),
        (("took 1 ...",), ["took 1 0.25s"], True),
        (("took 1 ...",), ["took 2 0.25s"], False),
        (("a", "...", "z"), ["a", "b", "c", "z"], True),
        (("a", "...", "z"), ["a", "b", "c"], False),
        (("a",), ["a", "b"], False),
        ((), ["a"], False),
        (("f(x) [1]",), ["f(x) [1]"], True),
    ],
)
def test_outputs_are_compared_but_for_what_is_left_open(
    expected: tuple[str, ...], printed: list[str], same: bool
) -> None:
    assert agrees(expected, printed) is same


@pytest.mark.parametrize(
    ("command", "shown", "may_fail", "right"),
    [
        ("true", (), False, True),
        ("false", (), False, False),
        ("echo error: no", ("error: no",), False, False),
        ("bash -c 'echo error: no; exit 2' | cat", ("error: no",), False, False),
        ("bash -c 'echo error: no; exit 2' | cat", ("error: no",), True, True),
        ("bash -c 'exit 2' 2>/dev/null | cat", (), False, False),
        ("yes | head -1", ("y",), False, True),
        ("true", ("error: no",), True, False),
        ("false", (), True, False),
    ],
)
def test_a_failure_is_refused_unless_the_page_marks_it(
    command: str, shown: tuple[str, ...], may_fail: bool, right: bool, tmp_path: Path
) -> None:
    status, printed = run(command, tmp_path)

    fault = Command(text=command, output=shown, line=0, may_fail=may_fail).fault(status, printed)

    assert (fault is None) is right


def test_a_fence_that_is_meant_to_fail_shows_a_failure(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- meant to fail -->\n```console\n$ true\n```\n", encoding="utf-8")

    with pytest.raises(AssertionError, match="none fails"):
        list(examples(page))


def test_rewriting_never_records_a_failure_that_is_not_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    text = "```console\n$ rota sim --no-such-option | head -1\n```\n"
    page.write_text(text, encoding="utf-8")
    monkeypatch.setattr("docs.rewrite.name_of", lambda page: page.name)

    assert rewrite(page) == 1
    assert page.read_text(encoding="utf-8") == text
