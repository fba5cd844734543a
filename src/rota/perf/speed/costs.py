"""What stops, restarts and checkpoints cost a job in time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rota.core.errors import RotaError


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Costs of faults and preemption."""

    restart_s: float = 0.0
    """Seconds after every start but the first in which no work is done."""
    checkpoint_interval_s: float = 0.0
    """Running time that a fault can undo, for jobs that do not declare it; 0 for none."""
    checkpoint_s: float = 0.0
    """Seconds that a job needs to save its state when stopped; it holds its devices meanwhile."""
    checkpoint_write_s: float = 0.0
    """Seconds without work at each checkpoint of a running job."""
    resume_s: float = 0.0
    """Seconds after resuming a suspended job in which no work is done."""
    move_s: float | None = None
    """Seconds after a move in which no work is done; None: as after a restart."""
    resize_s: float | None = None
    """Seconds after a change of size in which no work is done; None: as after a restart."""
    load_s: float = 0.0
    """Seconds after every start in which a job loads its data and does no work."""
    save_s: float = 0.0
    """Seconds from the end of a job's work to its own end, in which it saves and needs no devices."""

    @property
    def of_move_s(self) -> float:
        """Seconds that a move costs."""
        return self.restart_s if self.move_s is None else self.move_s

    @property
    def of_resize_s(self) -> float:
        """Seconds that a change of size costs."""
        return self.restart_s if self.resize_s is None else self.resize_s

    def __post_init__(self) -> None:
        if not self.checkpoint_interval_s >= 0:
            raise RotaError(f"checkpoint interval is {self.checkpoint_interval_s:g}; it must be 0 or more")
        stops = ("restart cost", self.restart_s), ("checkpoint time", self.checkpoint_s), ("resume cost", self.resume_s)
        moves = ("move cost", self.of_move_s), ("resize cost", self.of_resize_s)
        saves = ("load time", self.load_s), ("save time", self.save_s), ("checkpoint write", self.checkpoint_write_s)
        for name, cost_s in (*stops, *moves, *saves):
            if not 0 <= cost_s < math.inf:
                raise RotaError(f"{name} is {cost_s:g}; it must be a number of seconds, 0 or more")
