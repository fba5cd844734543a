"""How fast the driver copies GPU memory to the host and back: measured with every suspension, and kept."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from rota.store.run_folder import Json, read_json, write_json

FILE = "gpu-copy-rates.json"
_GIB = 2**30
_WEIGHT = 0.3
"""The weight of the last measurement."""
_LEAST_BYTES = 1 << 28
"""Smaller copies take as long as they take to begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRates:
    """Bytes a second in both directions; at first those of an H200 with driver 580."""

    out: float = 1.9 * _GIB
    back: float = 5.5 * _GIB

    def suspend_s(self, gpu_bytes: int) -> float:
        """Return how long a suspension takes."""
        return gpu_bytes / self.out

    def resume_s(self, gpu_bytes: int) -> float:
        """Return how long it takes until a suspended job goes on."""
        return gpu_bytes / self.back


class LearnedRates:
    """The rates of this machine."""

    def __init__(self, home: Path) -> None:
        self._path = home / FILE
        self.rates = CopyRates()
        with contextlib.suppress(OSError, ValueError, TypeError):
            known = read_json(self._path)
            if known is not None:
                self.rates = CopyRates(out=float(known["out"]), back=float(known["back"]))

    def learn(self, state: Json) -> None:
        """Take over what a supervisor measured last."""
        held = float(state.get("swap_held_bytes") or 0)
        if held < _LEAST_BYTES:
            return
        out, back = self.rates.out, self.rates.back
        if state.get("swap") == "held" and state.get("swap_out_s"):
            out += _WEIGHT * (held / float(state["swap_out_s"]) - out)
        elif state.get("swap_in_s"):
            back += _WEIGHT * (held / float(state["swap_in_s"]) - back)
        self.rates = CopyRates(out=out, back=back)
        with contextlib.suppress(OSError):
            write_json(self._path, {"out": out, "back": back})
