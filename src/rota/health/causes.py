"""Why a task failed: a readable table of signs, and the cause that the end of an output, its code and Xids point to."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from rota.core.errors import RotaError, did_you_mean

TABLE = Path(__file__).with_name("causes.toml")
LONGEST_LINE = 2000
"""Characters of a line that are looked at."""
LONGEST_EVIDENCE = 240
_TIERS = (1, 2, 3, 4)


class Blame(Enum):
    """What has to change for the job to succeed."""

    JOB = "job"
    NODE = "node"
    NETWORK = "network"
    STORAGE = "storage"
    UNKNOWN = "unknown"


class Remedy(Enum):
    """What to do about a failed job."""

    NEVER = "never"
    MORE_MEMORY = "more-memory"
    RETRY = "retry"
    ELSEWHERE = "elsewhere"
    AFTER_REPAIR = "after-repair"


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseOfFailure:
    """One row of the table."""

    name: str
    says: str
    tier: int
    blame: Blame
    remedy: Remedy
    philly: str = ""
    patterns: tuple[re.Pattern[str], ...] = ()
    exit_codes: frozenset[int] = frozenset()
    signals: frozenset[int] = frozenset()
    xids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The cause that the signs point to, and the sign."""

    cause: CauseOfFailure
    evidence: str


def parse_causes(text: str, source: str) -> tuple[CauseOfFailure, ...]:
    """The causes of a table in TOML; a mistake names the cause and the field."""
    try:
        rows = tomllib.loads(text).get("cause", [])
    except tomllib.TOMLDecodeError as error:
        raise RotaError(f"{source}: not TOML: {error}") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise RotaError(f"{source}: causes are written as tables [[cause]]")
    return tuple(
        _cause(row, f"{source}: cause {row.get('name', number)!r}") for number, row in enumerate(rows, start=1)
    )


_FIELDS = frozenset(CauseOfFailure.__slots__)


def _cause(row: Mapping[str, Any], where: str) -> CauseOfFailure:
    for field in row:
        if field not in _FIELDS:
            raise RotaError(f"{where} has no field {field!r}; {did_you_mean(field, _FIELDS)}")
    for field in ("name", "says"):
        if not isinstance(row.get(field), str) or not row[field]:
            raise RotaError(f"{where} needs {field}, a text")
    if row.get("tier") not in _TIERS:
        raise RotaError(f"{where}: tier is {row.get('tier')!r}; it must be 1, 2, 3 or 4")
    return CauseOfFailure(
        name=row["name"],
        says=row["says"],
        tier=row["tier"],
        blame=Blame(_word(row, "blame", [each.value for each in Blame], where)),
        remedy=Remedy(_word(row, "remedy", [each.value for each in Remedy], where)),
        philly=str(row.get("philly", "")),
        patterns=tuple(_pattern(text, where) for text in row.get("patterns", ())),
        exit_codes=_numbers(row, "exit_codes", where),
        signals=_numbers(row, "signals", where),
        xids=_numbers(row, "xids", where),
    )


def _word(row: Mapping[str, Any], field: str, known: Sequence[str], where: str) -> str:
    found = row.get(field)
    if found not in known:
        raise RotaError(f"{where}: {field} is {found!r}; {did_you_mean(str(found), known)}")
    return str(found)


def _pattern(text: object, where: str) -> re.Pattern[str]:
    try:
        return re.compile(str(text))
    except re.error as error:
        raise RotaError(f"{where}: the pattern {text!r} is no regular expression: {error}") from error


def _numbers(row: Mapping[str, Any], field: str, where: str) -> frozenset[int]:
    found = row.get(field, [])
    if not isinstance(found, list) or not all(isinstance(each, int) for each in found):
        raise RotaError(f"{where}: {field} is {found!r}; it must be a list of whole numbers")
    return frozenset(found)


@cache
def built_in_causes() -> tuple[CauseOfFailure, ...]:
    """Rota's own table."""
    return parse_causes(TABLE.read_text(encoding="utf-8"), TABLE.name)


def read_causes(path: Path | None) -> tuple[CauseOfFailure, ...]:
    """The causes of a user's file, which come first, and Rota's own."""
    if path is None:
        return built_in_causes()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RotaError(f"{path}: the table of causes can't be read: {error}") from error
    return (*parse_causes(text, str(path)), *built_in_causes())


_PREFIX = re.compile(
    r"^(?:\s*(?:\[(?:rank|default|RANK)?\s*\d+\]:|\[\d+,\d+\]<std(?:err|out)>:|.{0,40}\[\d+\]<std(?:err|out)>:|[\w.-]{1,60}\s+\|))+\s?"
)
"""What launchers write before each line of a rank: torchrun, mpirun, Horovod, Docker Compose."""
_INFORMS = re.compile(
    r"NCCL INFO|\[INFO\]| - INFO - |\b(?:User|Future|Deprecation|Runtime|Import|Pending\w{1,60})Warning\b"
)
"""Lines of a run that goes well, too."""
_XID = re.compile(r"NVRM: Xid \([^)]*\): (\d+)|\bXid:? (\d+)\b")


def diagnose(
    output: str,
    *,
    exit_code: int | None = None,
    signal: int | None = None,
    xids: Iterable[int] = (),
    causes: Sequence[CauseOfFailure] | None = None,
) -> Diagnosis | None:
    """The most telling cause of a failure; None where no sign is known.

    Of the causes that match, the lowest tier wins, then the last line that matches, then the order of the table.
    """
    table = built_in_causes() if causes is None else causes
    found: list[tuple[int, int, int, Diagnosis]] = []
    lines = [_PREFIX.sub("", line[:LONGEST_LINE], count=1) for line in output.splitlines()]
    telling = ["" if _INFORMS.search(line) else line for line in lines]
    reported = [(len(lines), number, f"Xid {number}") for number in xids]
    for at, line in enumerate(lines):
        if "Xid" in line and (seen := _XID.search(line)):
            reported.append((at, int(seen[1] or seen[2]), _short(line)))
    for order, cause in enumerate(table):
        at_line = _last_match(cause, telling)
        if at_line is not None:
            found.append((cause.tier, -at_line, order, Diagnosis(cause=cause, evidence=_short(lines[at_line]))))
        for at, number, words in reported:
            if number in cause.xids:
                found.append((min(cause.tier, 2), -at, order, Diagnosis(cause=cause, evidence=words)))
        if signal in cause.signals or (signal is None and exit_code in cause.exit_codes):
            said = f"signal {signal}" if signal is not None else f"exit code {exit_code}"
            found.append((cause.tier, 1, order, Diagnosis(cause=cause, evidence=said)))
    return min(found, key=lambda each: each[:3])[3] if found else None


def _last_match(cause: CauseOfFailure, lines: Sequence[str]) -> int | None:
    for at in range(len(lines) - 1, -1, -1):
        line = lines[at]
        if line and any(pattern.search(line) for pattern in cause.patterns):
            return at
    return None


def _short(line: str) -> str:
    line = line.strip()
    return line if len(line) <= LONGEST_EVIDENCE else line[: LONGEST_EVIDENCE - 1] + "…"
