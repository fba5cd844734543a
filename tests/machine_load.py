"""How busy this machine is, for bounds on real time: tests run beside each other, and beside other programs."""

from __future__ import annotations

import os


def slowness() -> float:
    """How many times longer than alone a process may take now: processes that want to run, per core; at least 1."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
