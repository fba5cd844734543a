"""What a check prints: its name, what it found in words, and the figures behind it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rota.health.node_state import Severity

MOST_BYTES = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check."""

    check: str
    severity: Severity = Severity.GOOD
    text: str = ""
    values: Mapping[str, float | str | None] = field(default_factory=dict)

    def encode(self) -> str:
        """One line of JSON."""
        return json.dumps(
            {"check": self.check, "status": self.severity.value, "text": self.text, "values": dict(self.values)}
        )


def worst_of(
    check: str, found: Iterable[tuple[Severity, str]], values: Mapping[str, float | str | None]
) -> CheckResult:
    """The result of several findings: the worst severity, and the words of all that are as bad."""
    listed = list(found)
    severity = max((each for each, _ in listed), key=lambda each: each.value, default=Severity.GOOD)
    text = "; ".join(words for each, words in listed if each is severity and severity is not Severity.GOOD)
    return CheckResult(check=check, severity=severity, text=text, values=values)


def decode_result(check: str, exit_code: int, output: bytes) -> CheckResult:
    """The result of a program: its exit code counts; what it prints, as far as it is the JSON of a result, explains.

    Any other exit code is a warning: a check that can't run proves nothing against its node.
    """
    try:
        severity = Severity(exit_code)
    except ValueError:
        return CheckResult(
            check=check, severity=Severity.WARNING, text=f"the check itself failed: exit code {exit_code}"
        )
    text, values = "", {}
    lines = output[:MOST_BYTES].decode(errors="replace").strip().splitlines()
    try:
        told = json.loads(lines[-1]) if lines else {}
        text = str(told.get("text", ""))[:500]
        given = told.get("values", {})
        values = {str(name): value for name, value in given.items() if isinstance(value, int | float | str)}
    except (ValueError, AttributeError):
        text = lines[-1][:500] if lines else ""
    return CheckResult(check=check, severity=severity, text=text or check, values=values)
