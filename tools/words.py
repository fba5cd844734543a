"""Find words that Rota's sources and pages do not use, and suggest better ones.

`make check` runs this; so does `tests/docs/test_words.py`. It reads prose: docstrings, comments and strings of Python,
whole pages of Markdown, HTML and JavaScript, and the help of the Makefile. Code in backticks, output in `console` and
`text` fences (the examples' own tests check it) and plain keys such as `"seats"` are left out. The glossary
(docs/reference/glossary.md) has the words to use instead.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

SCOPE = (
    *("src/rota", "bench", "reproductions", "tools", "docs"),
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile"),
)
"""Files and folders that are checked."""
SUFFIXES = (".py", ".md", ".html", ".js")

PEOPLE = (
    *("admin", "administrator", "author", "caller", "colleague", "developer", "engineer", "maintainer", "member"),
    *("operator", "owner", "people", "person", "reader", "researcher", "reviewer", "team", "user", "viewer", "visitor"),
)
"""Nouns that "who" may refer to."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern that is refused, and what to write instead."""

    pattern: re.Pattern[str]
    better: str


def _rule(words: str, better: str) -> Rule:
    spaced = words.replace(" ", r"[\s#]+")
    return Rule(re.compile(rf"(?<![A-Za-z])(?:{spaced})(?![A-Za-z])", re.IGNORECASE), better)


WORDS = (
    _rule("whoever|whomever", "the job (user, caller) that"),
    _rule("whom", "which; or name the person"),
    _rule("somebody|someone", "a user; a job"),
    _rule("anybody|anyone", "any user; any job"),
    _rule("everybody|everyone", "all users; all jobs"),
    _rule("nobody", "no job; no user; none"),
    _rule("anew", "again; from scratch"),
    _rule("nought", "0; zero; none"),
    _rule("pretend|pretends|pretended", "emulated"),
)
"""Words that are refused in names of the code as well."""

PHRASES = (
    *WORDS,
    _rule("(?:is|are|be|been|was|were) had", "is available; is reclaimed"),
    _rule("had back|have back|has back", "reclaimed"),
    _rule("pre-empt(?:s|ed|ing|ion|ions|ive)?", "preempt, without a hyphen"),
    _rule("(?:hold|holds|held|holding) back", "throttle"),
    _rule("(?:take|takes|taking|took) turns", "time-sliced"),
    _rule("crews?", "group of co-located jobs"),
    _rule("wish|wishes", "constraint; request; preference"),
    _rule("by mere", "by"),
    _rule("for good", "permanently"),
    _rule("GPU use", "GPU allocation (given out) or GPU utilisation (how busy)"),
    _rule("in (?:each other's|one's|its neighbours'|somebody's) way", "interfere"),
    _rule("what would be otherwise", "scenario"),
    _rule("nothing has been said yet", "No output yet"),
    _rule("part of jobs that took no longer", "cumulative share of jobs"),
)
"""Phrases that are refused in prose; "who" has a rule of its own."""

WHO = _rule("who", 'that, which (a job is "it"); for people, name them: "the user who"')
_PERSON = re.compile(rf"\b(?:{'|'.join(PEOPLE)})s?,?[\s#]+$", re.IGNORECASE)

EXEMPT: tuple[str, ...] = ()
"""Exact quotations: titles of publications, names in other systems."""

_OUTPUT = re.compile(r"^```(?:console|text)\n.*?^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]+`|https?://\S+")
_KEY = re.compile(r"[rbfu]*(['\"])[a-z0-9_./:-]*\1", re.IGNORECASE)
_TEXT = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A refused word and where it is."""

    path: str
    line: int
    word: str
    better: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word!r}; write: {self.better}"


def in_prose(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the line (from 0), the word and a better one for each refused word of a text."""
    plain = _CODE.sub(_blank, text)
    for exempt in EXEMPT:
        plain = plain.replace(exempt, _blanks(exempt))
    for rule in PHRASES:
        for match in rule.pattern.finditer(plain):
            yield plain.count("\n", 0, match.start()), _shown(match), rule.better
    for match in WHO.pattern.finditer(plain):
        if not _PERSON.search(plain, 0, match.start()):
            yield plain.count("\n", 0, match.start()), _shown(match), WHO.better


def in_python(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield the refused words of a module: those of its comments and strings, and those in names."""
    block: list[str] = []
    block_line = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        line = token.start[0] - 1
        if token.type == tokenize.COMMENT:
            if line != block_line + len(block):
                yield from _below(block_line, in_prose("\n".join(block)))
                block, block_line = [], line
            block.append(token.string)
        elif token.type in _TEXT and not _KEY.fullmatch(token.string):
            yield from _below(line, in_prose(token.string))
        elif token.type == tokenize.NAME:
            yield from ((line, token.string, rule.better) for rule in WORDS if rule.pattern.search(token.string))
    yield from _below(block_line, in_prose("\n".join(block)))


def _below(first: int, found: Iterator[tuple[int, str, str]]) -> Iterator[tuple[int, str, str]]:
    return ((first + line, word, better) for line, word, better in found)


def in_file(path: Path, root: Path = ROOT) -> list[Finding]:
    """Return the refused words of one file, in order."""
    text = path.read_text(encoding="utf-8")
    name = str(path.relative_to(root))
    if path.suffix == ".py":
        found = in_python(text)
    elif path.name == "Makefile":
        found = in_prose("\n".join(line.partition("## ")[2] for line in text.split("\n")))
    elif path.name == "CHANGELOG.md":
        found = in_prose(_newest(text))
    else:
        found = in_prose(_OUTPUT.sub(_blank, text))
    return sorted({Finding(name, line + 1, word, better) for line, word, better in found})


def tracked(places: Sequence[str], root: Path = ROOT) -> list[Path]:
    """Return the files with prose that git tracks in these places, without this module, which lists the words."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *places], cwd=root, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    paths = (root / name for name in listed if name)
    prose = (path for path in paths if path.suffix in SUFFIXES or path.name == "Makefile")
    return [path for path in prose if path.is_file() and path != Path(__file__).resolve()]


def _newest(changelog: str) -> str:
    """Return the newest section; what is above it is left blank, so that lines keep their numbers."""
    first, second = [*(match.start() for match in re.finditer(r"^## ", changelog, re.MULTILINE)), len(changelog)][:2]
    return "\n" * changelog.count("\n", 0, first) + changelog[first:second]


def _blank(match: re.Match[str]) -> str:
    return _blanks(match[0])


def _blanks(text: str) -> str:
    return re.sub(r"[^\n]", "·", text)


def _shown(match: re.Match[str]) -> str:
    return re.sub(r"[\s#]+", " ", match[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("places", nargs="*", metavar="PATH", help="files or folders to check; all by default")
    options = parser.parse_args()
    findings = [finding for path in tracked(options.places or SCOPE) for finding in in_file(path)]
    for finding in findings:
        print(finding)
    if findings:
        print(f"{len(findings)} words to replace; docs/reference/glossary.md has the terms", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
