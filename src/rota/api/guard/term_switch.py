"""What answers requests of a replica on Kubernetes: the present term, or a refusal between two terms and on standby."""

from __future__ import annotations

from typing import Any

from fastapi.responses import JSONResponse

from rota.api.limits.asgi import Asgi
from rota.live.loop.control import Control

BETWEEN_TERMS = "the settings have changed and take effect now; ask again in a few seconds"
_PROBES = ("/healthz", "/readyz")


class TermSwitch:
    """The application of the present term; before the first one, that of a standby replica."""

    def __init__(self) -> None:
        self.now: Asgi = _stand_by

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on."""
        await self.now(scope, receive, send)

    def end_term(self, control: Control) -> None:
        """Serve no request by a loop that has ended: those that still wait for it are told to ask again."""
        self.now = _between_terms
        control.end(BETWEEN_TERMS)


async def _stand_by(scope: Any, receive: Any, send: Any) -> None:
    await _refuse(scope, receive, send, "standing by", "this replica stands by; ask the one that leads")


async def _between_terms(scope: Any, receive: Any, send: Any) -> None:
    await _refuse(scope, receive, send, "between two terms", BETWEEN_TERMS)


async def _refuse(scope: Any, receive: Any, send: Any, state: str, why: str) -> None:
    if scope["type"] == "http":
        is_probe = scope["path"] in _PROBES
        body = {"state": state} if is_probe else {"error": why}
        headers = None if is_probe else {"Retry-After": "3"}
        await JSONResponse(body, status_code=200 if is_probe else 503, headers=headers)(scope, receive, send)
