"""What the API makes of errors."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from rota.api.app import make_app
from rota.core.errors import RotaError, Unavailable
from rota.files.up_file import LimitsPart


@pytest.mark.parametrize(("error", "status"), [(RotaError("no such\nwish"), 422), (Unavailable("no such\nwish"), 503)])
def test_errors_are_one_line_and_say_whose_turn_it_is(error: Exception, status: int) -> None:
    parts = SimpleNamespace(call_limits=LimitsPart(), proxy=None, access=SimpleNamespace(required=True, is_valid=bool))
    app = make_app(cast(Any, parts))

    @app.get("/fails")
    async def fails() -> None:
        raise error

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
            return await client.get("/fails")

    answer = asyncio.run(ask())

    assert (answer.status_code, answer.json()) == (status, {"error": "no such wish"})
