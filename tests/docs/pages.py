"""The documentation as data: its pages, headings and links, and the examples that tests can run.

What a page may hold:

- a fence marked `console`: lines that begin with `$ ` are commands (a backslash at the end continues one), the
  lines below a command are what it prints on stdout and stderr. `...` stands for any text within a line, and on a
  line of its own for any lines. The widths of columns are not compared. A command succeeds, with each part of its
  pipe, and prints no line that begins with `error:`.
- `<!-- meant to fail -->` above such a fence: it shows failures. A command in it fails if and only if a line of its
  output begins with `error:`, and one of them does.
- `<!-- file: NAME -->` above a fence: the fence is that file, written before the commands below it run.
- `<!-- data: NAME NAME -->`: the commands below need these files from the folder `ROTA_DATA`.
- `<!-- needs: MODULE -->`: the commands below need a module that not every installation has.
- `<!-- manager -->` above a fence with `rota up ...`: a manager is started with these options, and the commands below
  talk to it until the end of the page.

All examples of a page run in one folder, from top to bottom. Other fences are not run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^```(\w*)\s*$")
_MANAGER = "<!-- manager -->"
_FILE = re.compile(r"^<!-- file: (\S+) -->$")
_FAILS = "<!-- meant to fail -->"
_DATA = re.compile(r"^<!-- data: (.+) -->$")
_NEEDS = re.compile(r"^<!-- needs: (\w+) -->$")
_HEADING = re.compile(r"^(#+) (.+)$")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command and its expected output; `line` is where the output begins, from 0."""

    text: str
    output: tuple[str, ...]
    line: int
    may_fail: bool = False

    def fault(self, status: int, printed: list[str]) -> str | None:
        """What is wrong with how it ended, if anything: it failed and was not meant to, or the reverse."""
        fails = status != 0 or _has_error(printed)
        if fails and not self.may_fail:
            return f"it fails (status {status}); if the page means that, write {_FAILS} above the fence"
        if fails != _has_error(self.output):
            return f"its status is {status}; the page shows {'an' if _has_error(self.output) else 'no'} error"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file whose content the page contains."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """External files that the commands below need."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A manager that the commands below talk to."""

    options: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """A module that the commands below need."""

    module: str


Example = Command | File | Data | Needs | Start


def all_pages() -> list[Path]:
    """Return every page, the README first."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(page: Path) -> str:
    """Return a page's path in the repository."""
    return page.relative_to(ROOT).as_posix()


def fences(lines: list[str]) -> Iterator[tuple[str, str, int, int]]:
    """Yield the line above each fence, its language, and where its text begins and ends."""
    begin: int | None = None
    language = above = ""
    for number, line in enumerate(lines):
        if begin is None and (found := _FENCE.match(line)):
            begin, language, above = number + 1, found[1], lines[number - 1] if number else ""
        elif begin is not None and line.rstrip() == "```":
            yield above, language, begin, number
            begin = None


def examples(page: Path) -> Iterator[Example]:
    """Return the examples of a page, from top to bottom."""
    lines = page.read_text(encoding="utf-8").splitlines()
    places: list[tuple[int, Example]] = [
        (number, Data(names=tuple(found[1].split())))
        for number, line in enumerate(lines)
        if (found := _DATA.match(line))
    ]
    places.extend(
        (number, Needs(module=found[1])) for number, line in enumerate(lines) if (found := _NEEDS.match(line))
    )
    for above, language, begin, end in fences(lines):
        if found := _FILE.match(above):
            places.append((begin, File(name=found[1], text="\n".join(lines[begin:end]) + "\n")))
        elif above == _MANAGER:
            rota, up, *options = shlex.split(lines[begin].partition("#")[0])
            assert [rota, up] == ["rota", "up"], f"line {begin + 1}: {_MANAGER} is for `rota up`"
            places.append((begin, Start(options=tuple(options))))
        elif language == "console":
            commands = list(_commands(lines, begin, end, may_fail=above == _FAILS))
            assert above != _FAILS or any(_has_error(command.output) for command in commands), (
                f"line {begin}: none fails"
            )
            places.extend((command.line, command) for command in commands)
    for _, example in sorted(places, key=lambda place: place[0]):
        yield example


def _has_error(output: Iterable[str]) -> bool:
    return any(line.startswith("error:") for line in output)


def _commands(lines: list[str], begin: int, end: int, *, may_fail: bool) -> Iterator[Command]:
    number = begin
    while number < end:
        assert lines[number].startswith("$ "), f"line {number + 1}: an example begins with a command"
        text = lines[number][2:]
        while text.endswith("\\"):
            number += 1
            text = text[:-1] + lines[number].strip()
        number += 1
        first = number
        while number < end and not lines[number].startswith("$ "):
            number += 1
        yield Command(text=text, output=tuple(lines[first:number]), line=first, may_fail=may_fail)


def agrees(expected: tuple[str, ...], printed: list[str]) -> bool:
    """Whether the output matches the page's, where `...` matches anything."""
    patterns = ["(?:.*\n)*" if line == "..." else f"{_pattern(line)}\n" for line in expected]
    text = "".join(f"{' '.join(line.split())}\n" for line in printed)
    return re.fullmatch("".join(patterns), text) is not None


def _pattern(line: str) -> str:
    parts = [re.escape(part) for part in " ".join(line.split()).split("...")]
    return ".*".join(parts)


def headings(page: Path) -> list[tuple[int, str]]:
    """Return the level and text of each heading."""
    found = []
    for line in _prose(page):
        if match := _HEADING.match(line):
            found.append((len(match[1]), match[2]))
    return found


def section(page: Path, heading: str) -> str:
    """Return the text below a heading, up to the next one of its level or above; empty if there is no such heading."""
    lines = page.read_text(encoding="utf-8").splitlines()
    inside = {number for _, _, begin, end in fences(lines) for number in range(begin, end)}
    taken: list[str] = []
    level = 0
    for number, line in enumerate(lines):
        match = None if number in inside else _HEADING.match(line)
        if match and level and len(match[1]) <= level:
            break
        if level:
            taken.append(line)
        elif match and match[2] == heading:
            level = len(match[1])
    return "\n".join(taken)


def links(page: Path) -> list[str]:
    """Return the targets of a page's links and images."""
    return [found[1] for line in _prose(page) for found in _LINK.finditer(line)]


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub derives it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _prose(page: Path) -> list[str]:
    """Yield the lines outside of fences."""
    lines = page.read_text(encoding="utf-8").splitlines()
    inside = {number for _, _, begin, end in fences(lines) for number in range(begin - 1, end + 1)}
    return [line for number, line in enumerate(lines) if number not in inside]
