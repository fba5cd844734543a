"""How long a pattern of a rule may take: the values that it is compared with are names that users choose.

Python's patterns try all ways to match. What a pattern of Prometheus has is counted here; a pattern with too many ways
is refused when it is read, not noticed when a name has been found that takes hours.
"""

from __future__ import annotations

import math
import re
from importlib import import_module
from typing import Any

MOST_WAYS = 100_000
"""Two repetitions over names of 128 characters, with some alternatives."""
LONGEST = 128
_parser: Any = import_module("re._parser")
_SINGLE = frozenset({"LITERAL", "NOT_LITERAL", "ANY", "IN", "AT"})
_REPEATS = frozenset({"MAX_REPEAT", "MIN_REPEAT"})


def is_cheap(pattern: str) -> bool:
    """Whether a pattern has few ways to match a name; raises `re.error` for what is no pattern."""
    re.compile(pattern)
    return _ways(_parser.parse(pattern)) <= MOST_WAYS


def _ways(parsed: Any) -> float:
    found = 1.0
    for kind, content in parsed:
        found *= _ways_of(str(kind), content)
    return found


def _ways_of(kind: str, content: Any) -> float:
    """Return in how many ways a part may match at one place; without end for what is not counted."""
    if kind in _SINGLE:
        return 1.0
    if kind == "BRANCH":
        return sum(map(_ways, content[1]))
    if kind == "SUBPATTERN":
        return _ways(content[-1])
    if kind not in _REPEATS:
        return math.inf
    least, most, body = content
    least, most = int(least), min(int(most), LONGEST)
    inner = _ways(body)
    if (most > 1 and (inner > 1 or not body.getwidth()[0])) or least > LONGEST:
        return math.inf
    return inner + max(most - least, 0)
