"""The data sets that a visitor may use."""

from __future__ import annotations

import asyncio

from rota.store.data.data_sets import DataSet, DataSets
from rota.web.page_context import PageContext


async def visible_data_sets(context: PageContext) -> list[DataSet]:
    """Return the data sets that the visitor may use."""
    if context.service.snapshots is None:
        return []
    found = await asyncio.to_thread(DataSets(context.service.home).all)
    tenants = context.principal().tenants
    return [each for each in found if each.is_for(tenants)]
