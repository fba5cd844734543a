"""The state of a random generator as a value that JSON can hold, for policies that remember it."""

from __future__ import annotations

import random
from typing import Any


def rng_state(rng: random.Random) -> Any:
    """The state of a random generator, as lists."""
    version, numbers, gauss = rng.getstate()
    return [version, list(numbers), gauss]


def set_rng_state(rng: random.Random, memory: Any) -> None:
    """Put a random generator into a state that `rng_state` returned."""
    version, numbers, gauss = memory
    rng.setstate((version, tuple(numbers), gauss))
