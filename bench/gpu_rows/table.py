"""The table that all rows fill, line by line."""

from __future__ import annotations

rows: list[tuple[str, str, str, str]] = []
"""Claim, what was seen, what is wanted, whether it holds."""


def said(claim: str, seen: str, wanted: str, *, holds: bool) -> None:
    """Note and print a line of the table."""
    rows.append((claim, seen, wanted, "yes" if holds else "**no**"))
    print(f"| {claim} | {seen} | {wanted} | {rows[-1][3]} |", flush=True)
