"""How much GPU time each user held, and how much of it the GPUs were idle: by day, for a month."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rota.store import clock
from rota.store.run_folder import read_json, write_json

DAYS = 35
SAVE_S = 60.0
USUAL_IDLE_PERCENT = 5.0
"""Below this a GPU counts as idle where the settings name no other bound."""
FILE = "gpu-users.json"


@dataclass(slots=True)
class UserGpuUse:
    """GPU-seconds of one user: held, idle, and held of shared GPUs, of which it is not known whose work they did."""

    held_s: float = 0.0
    idle_s: float = 0.0
    shared_s: float = 0.0

    @property
    def idle_part(self) -> float | None:
        """The part of the attributable time in which the GPUs were idle; None if there was none."""
        known_s = self.held_s - self.shared_s
        return self.idle_s / known_s if known_s > 0 else None


class GpuUseByUser:
    """The accounts of all users; kept in a file beside the database."""

    def __init__(self, home: Path, idle_percent: float) -> None:
        self._path = home / FILE
        self._idle_percent = idle_percent or USUAL_IDLE_PERCENT
        self._saved_s = 0.0
        self._days: dict[str, dict[str, UserGpuUse]] = {}
        try:
            known = read_json(self._path) or {}
            for day, users in known.items():
                self._days[day] = {user: UserGpuUse(*map(float, amounts)) for user, amounts in users.items()}
        except (ValueError, TypeError, AttributeError):  # damaged: begin again
            self._days = {}

    def add(self, user: str, gpu_s: float, busy: float | None, now_s: float) -> None:
        """Count GPU-seconds; `busy` is the utilisation in percent, None where it can't be attributed."""
        day = datetime.fromtimestamp(clock.shown_s(now_s), UTC).date().isoformat()
        use = self._days.setdefault(day, {}).setdefault(user, UserGpuUse())
        use.held_s += gpu_s
        if busy is None:
            use.shared_s += gpu_s
        elif busy < self._idle_percent:
            use.idle_s += gpu_s

    def report(self, days: int = DAYS) -> dict[str, UserGpuUse]:
        """Return the use of the last days by user; the most idle GPU-seconds first."""
        found: dict[str, UserGpuUse] = {}
        for day in sorted(self._days)[-days:]:
            for user, use in self._days[day].items():
                total = found.setdefault(user, UserGpuUse())
                total.held_s += use.held_s
                total.idle_s += use.idle_s
                total.shared_s += use.shared_s
        return dict(sorted(found.items(), key=lambda each: (-each[1].idle_s, each[0])))

    def save_sometimes(self, now_s: float) -> None:
        """Write the file if the last time is long ago."""
        if now_s - self._saved_s >= SAVE_S:
            self.save(now_s)

    def save(self, now_s: float) -> None:
        """Write the file without the days that are too long ago; a full disk is tried again later."""
        self._saved_s = now_s
        for day in sorted(self._days)[:-DAYS]:
            del self._days[day]
        rows = {day: {user: _amounts(use) for user, use in users.items()} for day, users in self._days.items()}
        try:
            write_json(self._path, rows)
        except OSError:
            return


def _amounts(use: UserGpuUse) -> list[float]:
    return [use.held_s, use.idle_s, use.shared_s]


def rows_of(report: dict[str, UserGpuUse], users: Iterable[str] | None = None) -> list[dict[str, object]]:
    """Return a report as rows, of all users or of some."""
    seen = None if users is None else set(users)
    return [
        {
            "user": user,
            "gpu_hours": use.held_s / 3600,
            "idle_gpu_hours": use.idle_s / 3600,
            "shared_gpu_hours": use.shared_s / 3600,
            "idle_part": use.idle_part,
        }
        for user, use in report.items()
        if seen is None or user in seen
    ]
