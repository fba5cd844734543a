"""The devices of a bit mask as neighbouring lanes of a chart."""

from __future__ import annotations

from collections.abc import Iterator


def lanes(mask: int) -> Iterator[tuple[int, int]]:
    """Yield the runs of neighbouring devices in a mask, as (first, how many)."""
    low = 0
    while mask:
        skip = (mask & -mask).bit_length() - 1
        mask >>= skip
        low += skip
        count = (~mask & mask + 1).bit_length() - 1
        yield low, count
        mask >>= count
        low += count
