"""Reports found in lines of output, by a pattern such as `epoch {step}: loss {value}`.

The pattern is no regular expression: it is matched in the manager, where one that backtracks would hold up all users.
Blanks match any number of blanks, `{any}` matches anything (once), everything else itself. What stands before `{any}`
and what stands after it are searched for one after the other, and no part of either gives back what it has matched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rota.sweeps.trial import clean

LONGEST_LINE = 500
"""Characters of a line that are looked at."""
_FIELD = re.compile(r"\{([^{}]*)\}")
_DIGITS = r"(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eE][-+]?+\d++)?+"
_NUMBER = rf"[-+]?+(?:{_DIGITS}|nan|inf)"
_FIELDS = {"value": f"(?P<value>{_NUMBER})", "step": r"(?P<step>\d{1,15}+)"}
_ANY = "any"
_BLANKS = re.compile(r"\s+", re.ASCII)


@dataclass(frozen=True, slots=True)
class LinePattern:
    """A pattern, ready to be matched."""

    parts: tuple[re.Pattern[str], ...]
    """What stands before and after `{any}`."""

    def fields_of(self, line: str) -> dict[str, str] | None:
        """Return the fields of a line by name; None if the line doesn't match."""
        text, at = _BLANKS.sub(" ", line[:LONGEST_LINE]), 0
        found: dict[str, str] = {}
        for part in self.parts:
            match = part.search(text, at)
            if match is None:
                return None
            found |= match.groupdict()
            at = match.end()
        return found


def compiled(pattern: str) -> LinePattern:
    """Return the pattern for use; raise a `ValueError` that says what is wrong with it."""
    names = _FIELD.findall(pattern)
    for name in names:
        if name not in (*_FIELDS, _ANY):
            raise ValueError(f"unknown field {{{name[:40]}}}; use {{value}}, {{step}} and {{any}}")
        if names.count(name) > 1:
            raise ValueError(f"{{{name}}} is there twice; once is enough")
    if "value" not in names:
        raise ValueError("{value} is missing; put it where the metric stands, as in 'loss {value}'")
    before, *after = _BLANKS.sub(" ", pattern).split(f"{{{_ANY}}}")
    if after and before.endswith(" ") and after[0].startswith(" "):  # one blank is enough for both
        return LinePattern((_part(before[:-1], "(?= )"), _part(after[0])))
    return LinePattern(tuple(_part(each) for each in (before, *after)))


def _part(pattern: str, end: str = "") -> re.Pattern[str]:
    parts = _FIELD.split(pattern)
    made = [_FIELDS[part] if index % 2 else re.escape(part) for index, part in enumerate(parts)]
    return re.compile("".join(made) + end, re.ASCII)


def found_in(lines: Iterable[str], pattern: LinePattern, after: int = 0) -> Iterator[tuple[int, float]]:
    """Yield a step and its value for each line that matches; without a step in the pattern, lines are counted."""
    step = after
    for line in lines:
        named = pattern.fields_of(line)
        if named is None:
            continue
        step = int(named["step"]) if named.get("step") else step + 1
        yield step, clean(named["value"])
