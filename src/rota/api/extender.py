"""The extender's endpoints, outside of the API: kube-scheduler asks in formats of its own, with a token of its own.

kube-scheduler can't send a header of choice. It sends the user part of its `urlPrefix` as Basic authentication, so the
token is accepted as that password too.
"""

from __future__ import annotations

import base64
import hmac
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse

from rota.api.limits.asgi import Asgi
from rota.core.errors import RotaError
from rota.drivers.kubernetes.extender import Extender
from rota.drivers.kubernetes.objects.reading import NONSENSE
from rota.files.json_input import parse_json

PREFIX = "/v1/extender/"
VERBS = frozenset({"filter", "preempt", "bind"})
MOST_BYTES = 32 << 20
"""The size of a request: with all nodes as objects it has some kilobytes for each."""
MOST_VALUES = 2_000_000


class TooLargeRequest(RotaError):
    """A request of kube-scheduler exceeds its limit."""


def with_extender(app: Asgi, extender: Extender, token: str | None = None) -> Asgi:
    """Wrap an application so that it also answers kube-scheduler; with a token, only to its holder."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path", "")
        verb = path.removeprefix(PREFIX)
        if scope["type"] != "http" or not path.startswith(PREFIX) or verb not in VERBS:
            await app(scope, receive, send)
            return
        response = await _answer(Request(scope, receive), verb, extender, token)
        await response(scope, receive, send)

    return answer


async def _answer(request: Request, verb: str, extender: Extender, token: str | None) -> JSONResponse:
    if token is not None and not _is_allowed(request.headers.get("authorization", ""), token):
        return JSONResponse({"Error": "the extender's token is missing or wrong"}, status_code=401)
    try:
        body = parse_json(await _body(request), "the request", most_values=MOST_VALUES)
        if not isinstance(body, dict):
            raise RotaError("the request is not a mapping of fields to values")
        return JSONResponse(await extender.answer(verb, body))
    except TooLargeRequest as error:
        return JSONResponse({"Error": str(error)}, status_code=413)
    except NONSENSE as error:
        return JSONResponse({"Error": f"not a request of kube-scheduler: {str(error)[:200]!r}"}, status_code=400)


async def _body(request: Request) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BYTES:
            raise TooLargeRequest(f"the request is larger than {MOST_BYTES >> 20} MiB")
        parts.append(part)
    return b"".join(parts)


def _is_allowed(header: str, token: str) -> bool:
    scheme, _, given = header.partition(" ")
    if scheme.lower() == "basic":
        try:
            given = base64.b64decode(given.strip(), validate=True).decode("utf-8").partition(":")[2]
        except ValueError:  # no base64, or no text in it
            return False
    elif scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(given.strip().encode(), token.encode())
