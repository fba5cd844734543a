"""Times, amounts and states, formatted for people."""

from __future__ import annotations

from datetime import UTC, datetime

from rota.store import clock as manager_clock

STATES = ("running", "starting", "waiting", "suspended", "preempted", "held", "succeeded", "failed", "cancelled")


def duration(seconds: float | None) -> str:
    """Format a duration as `3d 4h`, `2h 5m`, `4m 10s` or `8 s`; a dash for None."""
    if seconds is None:
        return "–"
    whole = round(max(seconds, 0.0))
    if whole < 60:
        return f"{whole} s"
    units = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
    first = next(index for index, (size, _) in enumerate(units) if whole >= size)
    size, letter = units[first]
    text = f"{whole // size}{letter}"
    if first + 1 < len(units):
        smaller, small_letter = units[first + 1]
        rest = whole % size // smaller
        text += f" {rest}{small_letter}" if rest else ""
    return text


def ago(at_s: float | None, now_s: float | None = None) -> str:
    """Format a time relative to now: `5m 3s ago`, `in 2h`, `now`."""
    if at_s is None:
        return "–"
    passed_s = (manager_clock.now_s() if now_s is None else now_s) - at_s
    if abs(passed_s) < 2:
        return "now"
    return f"{duration(passed_s)} ago" if passed_s > 0 else f"in {duration(-passed_s)}"


def moment(at_s: float | None) -> str:
    """Format a time in full, in UTC."""
    return "–" if at_s is None else _date(at_s).strftime("%Y-%m-%d %H:%M:%S UTC")


def _date(at_s: float) -> datetime:
    """Return a moment of the manager's clock as the wall clock has it."""
    return datetime.fromtimestamp(manager_clock.shown_s(at_s), UTC)


def clock(at_s: float | None) -> str:
    """Format a time of day in UTC, with the date unless it is today."""
    if at_s is None:
        return "–"
    at, today = _date(at_s), datetime.now(UTC)
    return at.strftime("%H:%M" if at.date() == today.date() else "%b %d, %H:%M")


def amount(value: float) -> str:
    """Format a number with thousands separators and at most one decimal."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def plural(count: float, word: str) -> str:
    """Format a count with its noun: `1 job`, `2 jobs`."""
    return f"{amount(count)} {word}{'' if count == 1 else 's'}"


def percent(part: float, whole: float) -> str:
    """Format a fraction of a whole as a percentage."""
    return f"{100 * part / whole:.0f} %" if whole else "–"


def size(byte_count: float | None) -> str:
    """Format a number of bytes in the unit that fits."""
    if byte_count is None:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if byte_count < 1024:
            return f"{byte_count:.0f} {unit}" if unit == "B" else f"{byte_count:.1f} {unit}"
        byte_count /= 1024
    return f"{byte_count:.1f} TiB"
