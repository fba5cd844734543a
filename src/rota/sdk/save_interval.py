"""How often a training loop saves: as its script says, or as the manager does, by Young's formula.

The manager gives `ROTA_CHECKPOINT_EVERY`, and `ROTA_MTTF`, the time between two failures of all nodes that the job
holds. Both change with the failure rate while the job runs: the manager writes them to the job's folder then. Once a
checkpoint was made, its own time counts instead of an assumed one.
"""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path

SHORTEST_S = 1.0
FILE = "failure-rate.json"
KEPT = "checkpoint-time.json"
"""What a job's next attempt knows of the time that its checkpoints take."""
LOOK_S = 10.0
"""How often it is looked whether the manager has changed the interval."""
FIRST_PART = 0.1
"""The part of the interval after which a job saves for the first time: only then is it known how long that takes."""
_OLD_PART = 0.7
"""How much earlier checkpoints count in the mean of their times."""


class SaveInterval:
    """The time between two checkpoints of this process."""

    def __init__(self, fixed_s: float | None) -> None:
        self._fixed_s = fixed_s
        self._given_s = _seconds("ROTA_CHECKPOINT_EVERY")
        self._mttf_s = _seconds("ROTA_MTTF")
        folder = os.environ.get("ROTA_RUN_DIR")
        self._file = None if folder is None else Path(folder) / FILE
        self._looked_at = -math.inf
        self._asked_at: float | None = None
        self.write_s: float | None = None
        """How long checkpoints take, by those made so far, also in earlier attempts."""
        self._kept = None if folder is None else Path(folder) / KEPT
        self._recall()

    @property
    def interval_s(self) -> float | None:
        """The present interval; None: only when told to stop."""
        if self._fixed_s is not None:
            return self._fixed_s
        if self._given_s is None:
            return None
        if self.write_s is not None and self._mttf_s is not None:
            return max(math.sqrt(2.0 * self.write_s * self._mttf_s), SHORTEST_S)
        return self._given_s

    def is_due(self, passed_s: float) -> bool:
        """Whether a checkpoint is due so long after the last one; the time from then on is the checkpoint's."""
        self._look()
        interval_s = self.interval_s
        if interval_s is not None and self._fixed_s is None and self.write_s is None:
            interval_s *= FIRST_PART
        if interval_s is None or passed_s < interval_s:
            return False
        if self._asked_at is None:
            self._asked_at = time.monotonic()
        return True

    def _look(self) -> None:
        """Take over what the manager says now, if this process follows it."""
        now = time.monotonic()
        if self._file is None or self._given_s is None or now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        try:
            told = json.loads(self._file.read_text(encoding="utf-8"))
            given_s, mttf_s = float(told["every_s"]), float(told["mttf_s"])
        except (OSError, ValueError, KeyError, TypeError):
            return
        if 0 < given_s < math.inf and 0 < mttf_s < math.inf:
            self._given_s, self._mttf_s = given_s, mttf_s

    def saved(self) -> None:
        """A checkpoint was made; it took the time since it was due."""
        if self._asked_at is not None:
            took_s = max(time.monotonic() - self._asked_at, 1e-3)
            known = self.write_s
            self.write_s = took_s if known is None else _OLD_PART * known + (1.0 - _OLD_PART) * took_s
            self._asked_at = None
            self._keep()

    def _recall(self) -> None:
        try:
            if self._kept is not None:
                write_s = float(json.loads(self._kept.read_text(encoding="utf-8"))["write_s"])
                self.write_s = write_s if 0 < write_s < math.inf else None
        except (OSError, ValueError, KeyError, TypeError):
            return

    def _keep(self) -> None:
        if self._kept is None:
            return
        fresh = self._kept.with_name(f"{KEPT}.{os.getpid()}")
        try:
            fresh.write_text(json.dumps({"write_s": self.write_s}), encoding="utf-8")
            fresh.replace(self._kept)
        except OSError:  # the next attempt begins with the assumed time
            return


def _seconds(name: str) -> float | None:
    """An amount of time in the environment; None if there is none that makes sense."""
    try:
        value = float(os.environ.get(name, ""))
    except ValueError:
        return None
    return value if 0 < value < math.inf else None
