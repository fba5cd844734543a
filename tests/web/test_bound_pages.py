"""Pages end once, whoever ends them."""

from __future__ import annotations

import asyncio
from typing import cast

from nicegui import Client, core
from nicegui.page import page

from rota.api.access import Access
from rota.api.guard.stream_watch import StreamWatch
from rota.web.bound_pages import BoundPages
from rota.web.sessions import Sessions, Visitor


def test_page_that_was_revoked_is_deleted_once() -> None:
    """NiceGUI deletes a page some time after its socket has closed; by then it is gone with its session."""

    async def delete_twice() -> list[str]:
        core.loop = asyncio.get_running_loop()
        client = Client(page("/x"))
        deleted: list[str] = []
        BoundPages(StreamWatch()).bind(client, Visitor(cast(Access, None), Sessions(), "name"))
        client.on_delete(lambda: deleted.append(client.id))
        client.delete()
        client.delete()
        return deleted

    assert len(asyncio.run(delete_twice())) == 1
