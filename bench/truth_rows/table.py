"""The tables of the results: on the terminal, and in the page."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

from rota.live.truth.scores import percentile

Json = dict[str, Any]
HEAD = (
    "policy",
    "lengths",
    "starts",
    "in 90% range",
    "median error",
    "p90 error",
    "ends in range",
    "live mean s",
    "simulated",
    "by chance",
    "per job",
    "preemptions live/sim",
)
NAMES = ("live", "gpu", "kubernetes")
REPLAYED = {
    "traces": (
        *("trace", "devices", "policy", "forecasts", "coverage", "calibrated", "median_error", "p90_error"),
        *("ends", "ends_coverage", "ends_median_error"),
    ),
    "floor": ("policy", "source", "knows", "forecasts", "coverage", "calibrated", "median_error", "p90_error"),
}
"""Columns of the replayed tables."""
COUNTED = {"coverage": "forecasts", "calibrated": "forecasts", "ends_coverage": "ends"}
"""Columns that are a share of another."""
TITLES = {
    "coverage": "in 90% range",
    "ends_coverage": "ends in range",
    "ends_median_error": "median error of ends",
    "median_error": "median error",
    "p90_error": "p90 error",
    "source": "lengths",
    "knows": "what is known",
}


def cells(row: Json) -> list[str]:
    """Return a row as text."""
    start, end, sim = row["start"], row["end"], row["simulated"]
    return [
        row["policy"],
        row["source"],
        str(start["scored"] + start["overdue"]),
        _share(start["coverage"], start["scored"] + start["overdue"]),
        _percent(start["median_error"]),
        _percent(start["p90_error"]),
        _share(end["coverage"], end["scored"] + end["overdue"]),
        "-" if sim is None else f"{sim['real_mean_s']:.1f}",
        "-" if sim is None else f"{100 * sim['mean_error']:+.1f}%",
        _by_chance(sim),
        "-" if sim is None else _percent(sim["per_job_median"]),
        "-" if sim is None else "/".join(str(count) for count in sim["preemptions"]),
    ]


def _by_chance(sim: Json | None) -> str:
    """Return the errors of simulations with submissions that come slightly later."""
    found = None if sim is None else sim.get("by_chance")
    return "-" if found is None else " to ".join(f"{100 * each:+.1f}%" for each in found)


def _share(share: float | None, of: int) -> str:
    """Return a share that was counted, with what it may be by chance."""
    if share is None:
        return "-"
    low, high = wilson(share, of)
    return f"{_percent(share)} ({100 * low:.0f} to {100 * high:.0f})"


def wilson(share: float, of: int) -> tuple[float, float]:
    """Return the 95% interval of a share that was counted in a sample (Wilson, 1927)."""
    z2 = NormalDist().inv_cdf(0.975) ** 2
    middle = share + z2 / (2 * of)
    apart = math.sqrt(z2 * (share * (1 - share) / of + z2 / (4 * of * of)))
    return (middle - apart) / (1 + z2 / of), (middle + apart) / (1 + z2 / of)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}%"


def print_table(name: str, rows: Sequence[Json]) -> None:
    """Print the rows in columns."""
    lines = [list(HEAD), *(cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    print(f"{name}:")
    for line in lines:
        print(
            "  ".join(
                text.rjust(width) if at > 1 else text.ljust(width)
                for at, (text, width) in enumerate(zip(line, widths, strict=True))
            )
        )


def markdown(rows: Sequence[Json]) -> str:
    """Return the rows as a table of Markdown."""
    lines = [f"| {' | '.join(HEAD)} |", f"|{'---|' * 2}{'--:|' * (len(HEAD) - 2)}"]
    lines += [f"| `{found[0]}` | {' | '.join(found[1:])} |" for found in map(cells, rows)]
    return "\n".join(lines)


def replayed_markdown(rows: Sequence[Json], columns: Sequence[str]) -> str:
    """Return replayed rows as a table of Markdown."""
    lines = [
        f"| {' | '.join(TITLES.get(name, name) for name in columns)} |",
        f"|{'---|' * 3}{'--:|' * (len(columns) - 3)}",
    ]
    lines += [f"| {' | '.join(_cell(row, name) for name in columns)} |" for row in rows]
    return "\n".join(lines)


def _cell(row: Json, name: str) -> str:
    value = row[name]
    if name in COUNTED:
        return _share(value, row[COUNTED[name]])
    if isinstance(value, float) or value is None:
        return _percent(value)
    return f"`{value}`" if isinstance(value, str) and ":" in value else str(value)


def together(rows: Sequence[Json], columns: Sequence[str]) -> list[Json]:
    """Return one row for those that differ in their workloads only, as if they had been one replay."""
    groups: dict[tuple[Any, ...], list[Json]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in columns[:3]), []).append(row)
    return [_sum(group) if len(group) > 1 else group[0] for group in groups.values()]


def _sum(rows: Sequence[Json]) -> Json:
    singles = [each for row in rows for each in row["singles"]]
    errors = [
        math.inf if each["median_s"] is None else abs(each["median_s"] - each["started_s"]) / each["waited_s"]
        for each in singles
    ]
    found = {"forecasts": len(singles), "median_error": percentile(errors, 0.5), "p90_error": percentile(errors, 0.9)}
    for name in ("coverage", "calibrated"):
        found[name] = math.fsum(row["forecasts"] * (row[name] or 0.0) for row in rows) / max(len(singles), 1)
    return {**rows[0], **found}


def write_page(out: Path, page: Path) -> None:
    """Replace the tables of the page by those of the results that there are.

    Replays may be in several files, such as `floor-1.json` and `floor-2.json`, of different workloads.
    """
    text = page.read_text(encoding="utf-8")
    for name in (*NAMES, *REPLAYED):
        files = sorted(out.glob(f"{name}*.json"))
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        if files and begin in text:
            rows = [row for file in files for row in json.loads(file.read_text(encoding="utf-8"))]
            head, _, rest = text.partition(begin)
            columns = REPLAYED.get(name)
            table = markdown(rows) if columns is None else replayed_markdown(together(rows, columns), columns)
            text = f"{head}{begin}\n{table}\n{end}{rest.partition(end)[2]}"
    page.write_text(text, encoding="utf-8")
