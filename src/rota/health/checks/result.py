"""What a check prints: its name, what it found in words, and the figures behind it.

A verdict against a node is an exit code of 1 or 2 together with a line of JSON that says the same. Programs that crash
exit with such codes, too (Python with 1, many tools with 2): without that line the check is broken, and proves nothing.
"""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rota.health.node_state import Severity

MOST_BYTES = 16_384
"""Bytes of the end of an output that are looked at."""
MOST_VALUES = 64
LONGEST_TEXT = 500
_MOST = 1 << 63
BROKEN = 3
"""What a check exits with that can't tell anything about its node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check."""

    check: str
    severity: Severity = Severity.GOOD
    text: str = ""
    values: Mapping[str, float | str | None] = field(default_factory=dict)
    broken: bool = False
    """Whether the check itself failed: it says nothing about its node, neither good nor bad."""
    passes: bool = False
    """Whether what is wrong can pass without a repair, as a full disk does."""

    @property
    def exit_code(self) -> int:
        """What the program of this check exits with."""
        return BROKEN if self.broken else self.severity.value

    def encode(self) -> str:
        """One line of JSON."""
        told = {"check": self.check, "status": self.exit_code, "text": self.text, "values": dict(self.values)}
        return json.dumps({**told, "passes": True} if self.passes else told)


def worst_of(
    check: str,
    found: Iterable[tuple[Severity, str]],
    values: Mapping[str, float | str | None],
    *,
    passes: bool = False,
) -> CheckResult:
    """The result of several findings: the worst severity, and the words of all that are as bad."""
    listed = list(found)
    severity = max((each for each, _ in listed), key=lambda each: each.value, default=Severity.GOOD)
    text = "; ".join(words for each, words in listed if each is severity and severity is not Severity.GOOD)
    return CheckResult(check=check, severity=severity, text=text, values=values, passes=passes)


def decode_result(check: str, exit_code: int, output: bytes, errors: bytes = b"") -> CheckResult:
    """The result of a program by its exit code, the end of its output, and the end of its errors.

    Exit 0 is good. Exit 1 or 2 is a verdict if the last line of the output is JSON whose `status` is the same number;
    anything else is a broken check.
    """
    told = _last_object(output)
    status = None if told is None else told.get("status")
    is_said = type(status) is int and status == exit_code
    if exit_code == Severity.GOOD.value and (is_said or status is None):
        return CheckResult(check=check, text=_text(told), values=_values(told))
    if is_said and exit_code in (Severity.WARNING.value, Severity.SEVERE.value):
        severity = Severity(exit_code)
        passes = told is not None and told.get("passes") is True
        text = _text(told) or check
        return CheckResult(check=check, severity=severity, text=text, values=_values(told), passes=passes)
    lines = clean(errors).splitlines()
    why = (_text(told) if is_said else "") or next((line.strip() for line in reversed(lines) if line.strip()), "")
    return broken_check(check, f"{_end(exit_code, status)}{f': {why}' if why else ''}")


def broken_check(check: str, why: str) -> CheckResult:
    """The result of a check that could not tell anything."""
    return CheckResult(check=check, broken=True, text=why[:LONGEST_TEXT])


def _end(exit_code: int, status: object) -> str:
    """How a broken check ended, in words."""
    if exit_code < 0:
        known = {each.value: each.name for each in signal.Signals}
        return f"it was killed by {known.get(-exit_code, f'signal {-exit_code}')}"
    if exit_code == BROKEN:
        return "it can't tell"
    if exit_code > BROKEN:
        return f"it ended with exit code {exit_code}"
    if status is not None:
        return f"its exit code is {exit_code}, but its JSON has the status {clean(str(status).encode())[:40]}"
    return f"it ended with exit code {exit_code} and without JSON that has the status {exit_code}"


def _last_object(output: bytes) -> dict[str, Any] | None:
    """The object in the last line of an output; None where there is none."""
    lines = output[-MOST_BYTES:].decode(errors="replace").strip().splitlines()
    try:
        told = json.loads(lines[-1]) if lines else None
    except (ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None


def _text(told: Mapping[str, Any] | None) -> str:
    text = "" if told is None else told.get("text", "")
    return clean(text.encode(errors="replace"))[:LONGEST_TEXT] if isinstance(text, str) else ""


def _values(told: Mapping[str, Any] | None) -> dict[str, float | str | None]:
    given = {} if told is None else told.get("values", {})
    if not isinstance(given, dict):
        return {}
    known = {
        str(name)[:100]: value[:LONGEST_TEXT] if isinstance(value, str) else value
        for name, value in given.items()
        if isinstance(value, str)
        or (isinstance(value, int) and abs(value) < _MOST)
        or (isinstance(value, float) and math.isfinite(value))
    }
    return dict(list(known.items())[:MOST_VALUES])


def clean(output: bytes) -> str:
    """The end of an output as text without what would steer a terminal."""
    text = output[-MOST_BYTES:].decode(errors="replace")
    return "".join(each if each.isprintable() or each == "\n" else " " for each in text)
