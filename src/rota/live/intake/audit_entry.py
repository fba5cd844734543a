"""The origin of a change, and the entry that the audit log gets for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rota.store import clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """The origin of a request: a name for the audit log, and the role that limits priorities."""

    name: str = "local"
    role: str = "admin"
    account: str | None = None
    """The Unix account that its token names, if it names one."""


def audit_entry(asker: Asker, what: str, thing: str, detail: str = "") -> dict[str, Any]:
    """Return an entry of the audit log."""
    return {"at_s": clock.now_s(), "who": asker.name, "what": what, "thing": thing, "detail": detail}
