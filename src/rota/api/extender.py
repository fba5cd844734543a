"""The extender's endpoints, outside of the API: kube-scheduler uses neither tokens nor Rota's formats."""

from __future__ import annotations

import json
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse

from rota.api.limits.asgi import Asgi
from rota.drivers.kubernetes.extender import Extender

PREFIX = "/v1/extender/"
VERBS = frozenset({"filter", "preempt", "bind"})


def with_extender(app: Asgi, extender: Extender) -> Asgi:
    """Wrap an application so that it also answers kube-scheduler."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path", "")
        verb = path.removeprefix(PREFIX)
        if scope["type"] != "http" or not path.startswith(PREFIX) or verb not in VERBS:
            await app(scope, receive, send)
            return
        try:
            response = JSONResponse(await extender.answer(verb, json.loads(await Request(scope, receive).body())))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            response = JSONResponse({"Error": f"not a request of kube-scheduler: {error!r}"}, status_code=400)
        await response(scope, receive, send)

    return answer
