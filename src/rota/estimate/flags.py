"""Attributes of a run from its command line: the program and its flags."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

from rota.estimate.observations import Value

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_LAUNCHERS = re.compile(r"(python[\d.]*|torchrun|sh|bash|env|exec|nice|accelerate|launch)")


def attributes_of(command: str | Sequence[str]) -> dict[str, Value]:
    """Return the program and every flag of a command; a flag without a value is 1."""
    words = _words(command) if isinstance(command, str) else list(command)
    found: dict[str, Value] = {}
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if word.startswith("--") and len(word) > 2:
            name, given, text = word[2:].partition("=")
            if not given and index < len(words) and _is_value(words[index]):
                text, given = words[index], "="
                index += 1
            found[name.replace("-", "_").lower()] = _value(text) if given else 1.0
        elif "program" not in found and not word.startswith("-") and "=" not in word:
            program = PurePosixPath(word).name
            if not _LAUNCHERS.fullmatch(program):
                found["program"] = program
    return found


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def _is_value(word: str) -> bool:
    return not word.startswith("-") or _NUMBER.fullmatch(word) is not None


def _value(text: str) -> Value:
    return float(text) if _NUMBER.fullmatch(text) else text
