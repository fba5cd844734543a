"""The origin of a change, and the entry that the audit log gets for it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """The origin of a request: a name for the audit log, and the role that limits priorities."""

    name: str = "local"
    role: str = "admin"


def audit_entry(asker: Asker, what: str, thing: str, detail: str = "") -> dict[str, Any]:
    """Return an entry of the audit log."""
    return {"at_s": time.time(), "who": asker.name, "what": what, "thing": thing, "detail": detail}
