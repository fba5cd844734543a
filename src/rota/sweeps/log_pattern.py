"""Reports found in lines of output, by a pattern such as `epoch {step}: loss {value}`.

The pattern is no regular expression: it is matched in the manager, where one that backtracks would hold up all users.
Blanks match any number of blanks, `{any}` matches anything (once), everything else itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rota.sweeps.trial import clean

LONGEST_LINE = 500
"""Characters of a line that are looked at."""
_FIELD = re.compile(r"\{([^{}]*)\}")
_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf)"
_FIELDS = {"value": f"(?P<value>{_NUMBER})", "step": r"(?P<step>\d{1,15})", "any": ".*?"}


def compiled(pattern: str) -> re.Pattern[str]:
    """Return the pattern as a regular expression; raise a `ValueError` that says what is wrong with it."""
    names = _FIELD.findall(pattern)
    for name in names:
        if name not in _FIELDS:
            raise ValueError(f"unknown field {{{name[:40]}}}; use {{value}}, {{step}} and {{any}}")
        if names.count(name) > 1:
            raise ValueError(f"{{{name}}} is there twice; once is enough")
    if "value" not in names:
        raise ValueError("{value} is missing; put it where the metric stands, as in 'loss {value}'")
    parts = _FIELD.split(pattern)
    made = [_FIELDS[part] if index % 2 else _literal(part) for index, part in enumerate(parts)]
    return re.compile("".join(made), re.ASCII)


def _literal(text: str) -> str:
    words = [re.escape(word) for word in re.split(r"\s+", text)]
    return r"\s+".join(words)


def found_in(lines: Iterable[str], pattern: re.Pattern[str], after: int = 0) -> Iterator[tuple[int, float]]:
    """Yield a step and its value for each line that matches; without a step in the pattern, lines are counted."""
    step = after
    for line in lines:
        match = pattern.search(line[:LONGEST_LINE])
        if match is None:
            continue
        named = match.groupdict()
        step = int(named["step"]) if named.get("step") else step + 1
        yield step, clean(named["value"])
