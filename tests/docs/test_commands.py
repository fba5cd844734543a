"""Commands of `rota` that pages show but the tests don't run: each names a command and options that exist."""

from __future__ import annotations

import re
import shlex
from functools import cache
from typing import Any

import pytest
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from docs.pages import all_pages, fences, name_of
from rota.cli.commands import COMMANDS
from rota.cli.lazy_group import load
from rota.cli.main import app

_ROTA = re.compile(r"(?:^|[|(&;] *)rota ([^|&;)]*)")
_PLACEHOLDER = re.compile(r"[<\[]|^\.\.\.$")


def unknown(command: str) -> str | None:
    """The first word of a command line that `rota` does not know: a command or an option."""
    words = shlex.split(command, comments=True)
    known: TyperCommand | TyperGroup = get_command(app)  # type: ignore[assignment]
    options = _options(known)
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            return None
        if word.startswith("-") and not re.fullmatch(r"-\d+", word):
            name = word.partition("=")[0]
            if name not in options:
                return word
            if options[name] and "=" not in word:
                at += 1
        elif isinstance(known, TyperGroup):
            below = _below(known, word)
            if below is None:
                return word
            known, options = below, _options(below)
    return None


def _below(group: TyperGroup, word: str) -> Any:
    entry = next((entry for entry in COMMANDS if entry.name == word), None)
    if group.name == "rota" or group.commands.keys() >= {"sim", "submit"}:
        return None if entry is None else _loaded(word)
    found = group.commands.get(word)
    return group.commands.get("start") if found is None and group.name == "sweep" else found


@cache
def _loaded(name: str) -> Any:
    return load(next(entry for entry in COMMANDS if entry.name == name))


def _options(command: Any) -> dict[str, bool]:
    """Each spelling of an option, and whether a value follows it."""
    found = {"-h": False, "--help": False}
    for param in command.params:
        for name in (*param.opts, *param.secondary_opts):
            if name.startswith("-"):
                found[name] = not getattr(param, "is_flag", False) and not getattr(param, "count", False)
    return found


def shown() -> list[tuple[str, str]]:
    """The commands in fences for shells, with where each stands."""
    found: list[tuple[str, str]] = []
    for page in all_pages():
        lines = page.read_text(encoding="utf-8").splitlines()
        for _, language, begin, end in fences(lines):
            if language in ("sh", "bash", "shell"):
                text = "\n".join(lines[begin:end]).replace("\\\n", " ")
                for line in text.splitlines():
                    found.extend((f"{name_of(page)}:{begin + 1}", each) for each in _ROTA.findall(line.strip()))
    return [(where, command) for where, command in found if not any(map(_PLACEHOLDER.search, command.split()))]


def test_commands_in_pages_exist() -> None:
    commands = shown()

    assert len(commands) > 60
    assert [(where, command, word) for where, command in commands if (word := unknown(command))] == []


@pytest.mark.parametrize(
    ("command", "word"),
    [
        ("sim --trace a.csv --column x=y", "--column"),
        ("simm --trace a.csv", "simm"),
        ("token create ada --tenants x", "--tenants"),
        ("token mint ada", "mint"),
        ("--server URL ps --all", None),
        ("submit --gpus 1 -- python train.py --lr 3", None),
        ("sim --policy las -o json  # a note", None),
        ("trace convert a b --columns=submit=ts", None),
    ],
)
def test_unknown_words_are_found(command: str, word: str | None) -> None:
    assert unknown(command) == word
