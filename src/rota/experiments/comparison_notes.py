"""Notes on what a comparison of rows means, which no single run knows: they depend on what it is compared with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

DIFFERENT_PLACEMENTS = "different-placements"
GROUP = ("trace", "cluster", "variant", "load")
"""What the rows of one comparison share."""


def with_comparison_notes(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows with notes on the comparison among them in addition to their own."""
    placements: dict[tuple[Any, ...], dict[str, dict[str, None]]] = {}
    for row in rows:
        by_placement = placements.setdefault(_group(row), {})
        by_placement.setdefault(row["placement"], {})[row["policy"]] = None
    return [{**row, "notes": _extended(row["notes"], placements[_group(row)])} for row in rows]


def _group(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in GROUP)


def _extended(notes: str, by_placement: Mapping[str, Mapping[str, None]]) -> str:
    if len(by_placement) < 2:
        return notes
    each = "; ".join(f"{name}: {', '.join(policies)}" for name, policies in by_placement.items())
    text = f"policies are compared under different placements ({each}); set one for all with --placement"
    return json.dumps([*json.loads(notes), [DIFFERENT_PLACEMENTS, text]])
