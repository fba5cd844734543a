"""Output of failed tasks that is made to keep the manager busy: it looks for the cause in the last lines of each."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from rota.health.causes import LONGEST_LINE, built_in_causes, diagnose

attack = pytest.mark.attack
TAIL = 4096
"""The end of its output that is looked at."""
MOST_S = 0.12
"""CPU time on the manager's loop; 0.04 s at most on an idle machine."""
MOST_OF_ONE_S = 0.02
"""CPU time of one pattern for one line."""
PLAIN = ("a", "_", "0", " ", "a ", "é", "[0]:", "x | ", "[1,1]<std", " \t", "Pending", "checkpoint", "a" * 50 + " ")
"""What patterns for anything might match."""


def repeated(word: str) -> str:
    return (word * (LONGEST_LINE // len(word) + 1))[:LONGEST_LINE]


def taken_s(search: Callable[[str], object], text: str) -> float:
    begun_s = time.process_time()
    search(text)
    return time.process_time() - begun_s


@attack("fails with lines that are searched again and again", stopped_by="patterns repeat nothing without a bound")
def test_no_output_takes_long_to_search() -> None:
    texts = ["\n".join([repeated(word)] * 3)[:TAIL] for word in PLAIN]
    slow = {text[:20]: cost_s for text in texts if (cost_s := taken_s(diagnose, text)) > MOST_S}

    assert not slow


@attack("repeats the words of a pattern in one line", stopped_by="patterns repeat nothing without a bound")
def test_no_pattern_takes_long_for_its_own_words() -> None:
    patterns = [pattern for cause in built_in_causes() for pattern in cause.patterns]
    slow = {}
    for pattern in patterns:
        plain = re.sub(r"\\[a-zA-Z]|\(\?i\)", " ", pattern.pattern)
        for word in {found + end for found in re.findall(r"[A-Za-z_]{2,}", plain) for end in ("", " ")}:
            cost_s = min(taken_s(pattern.search, repeated(word)) for _ in range(2))
            if cost_s > MOST_OF_ONE_S:
                slow[pattern.pattern] = (word, cost_s)

    assert not slow


@attack("reports an error of its GPU with a number without end", stopped_by="lines are cut before they are read")
def test_numbers_in_output_are_bounded() -> None:
    diagnose("NVRM: Xid (PCI:0000:01:00): " + "9" * TAIL, exit_code=1)
    diagnose("Xid " + "9" * TAIL, exit_code=1)
