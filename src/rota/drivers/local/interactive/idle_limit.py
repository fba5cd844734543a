"""How long terminals in tasks may be idle."""

from __future__ import annotations

from dataclasses import dataclass

WARN_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleSessionLimit:
    """When terminals end in which nothing happens; None: never."""

    after_s: float | None = None
    warn_s: float = WARN_S
    """How long before that they are warned."""

    def order(self, asked_s: float | None) -> dict[str, float | None] | None:
        """Return what a session host has to know; `asked_s` is the time of the job's own, which can only be shorter."""
        times = [each for each in (self.after_s, asked_s) if each is not None]
        if not times:
            return None
        return {"after_s": self.after_s, "main_after_s": min(times), "warn_s": self.warn_s}
