"""Patterns of rules and silences that would take long on names that users choose are refused."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.files.alerts.expression import BadCondition, parse_matchers
from rota.files.alerts.pattern_cost import is_cheap

GOOD = (
    "nlp|vision",
    "a.*",
    ".*train.*",
    "node-[0-9]+",
    r"gpu\d{2}",
    "(?:ab)*c",
    "(?i:x)y?",
    "^a$",
    "",
    "a{2,5}b*",
    r"\w+-v\d+",
)
SLOW = (
    "(a+)+",
    "(a|ab)*",
    "(a*)*b",
    ".*.*.*x",
    "a?" * 40 + "a" * 40,
    "(?:a|a?)(?:a|a?)" * 12,
    "(a?){30}",
    "(a|b|ab){9}",
)
OTHER = (r"(a)\1", "(?=a)b", "(?:){99999}", "((a{0}){999}){999}", "a{999}", "(?>a+)+")


@pytest.mark.parametrize("pattern", GOOD)
def test_patterns_that_rules_need_are_taken(pattern: str) -> None:
    assert is_cheap(pattern)


@pytest.mark.attack(
    "chooses a job's name on which an admin's pattern takes hours, in the loop", stopped_by="slow patterns are refused"
)
@pytest.mark.parametrize("pattern", SLOW + OTHER)
def test_slow_patterns_are_refused_when_they_are_read(pattern: str) -> None:
    with pytest.raises(BadCondition, match="may take too long"):
        parse_matchers(f'name=~"{pattern}"')


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(["a", "b", ".", "*", "+", "?", "(", ")", "|", "{2}", "{1,9}", "[ab]", "(?:"]), max_size=12)
)
def test_what_is_taken_is_quick_on_hostile_names(parts: list[str]) -> None:
    pattern = "".join(parts)
    try:
        if not is_cheap(pattern):
            return
    except re.error:
        return
    for name in ("a" * 127 + "!", "ab" * 63 + "!", "aab" * 42 + "!"):
        begun = time.process_time()
        re.compile(pattern).fullmatch(name)
        assert time.process_time() - begun < 0.5
