"""What devices cost and consume, by type: the basis of metrics and policies that count money or energy."""

from __future__ import annotations

PRICES = {"v100": 2.48, "p100": 1.46, "k80": 0.45, "a100": 2.93, "h100": 11.06, "t4": 0.35}
"""Dollars an hour of one device on demand (Google Cloud, us-central1); a type that is not listed costs 1."""
BOARD_W = {"v100": 300.0, "p100": 250.0, "k80": 150.0, "a100": 400.0, "h100": 700.0, "t4": 70.0, "a10": 150.0}
"""The board power of one device by its data sheet (of a K80, half of the board); others take `OTHER_W`."""
OTHER_W = 300.0
IDLE = 0.15
"""The fraction of its board power that a free device takes: an assumption."""
