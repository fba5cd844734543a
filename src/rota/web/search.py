"""What the search box of every page finds: pages, jobs, sweeps, nodes and tenants that the visitor may see."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

from rota.store.jobs import JobSearch
from rota.web import words
from rota.web.page_context import PageContext

MAX_EACH = 6
MAX_TEXT = 128
SWEEPS_READ = 200
"""Sweeps among which is searched, the newest."""
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """One thing that was found, and its address."""

    kind: str
    title: str
    about: str
    target: str


async def search(context: PageContext, text: str, pages: Sequence[tuple[str, str]]) -> list[Json]:
    """Return what matches a text; for an empty text the pages. `pages` has (address, name)."""
    text = text.strip()[:MAX_TEXT]
    wanted = text.casefold()
    found = [
        SearchHit(kind="page", title=name, about="", target=target)
        for target, name in pages
        if wanted in name.casefold()
    ]
    if wanted:
        allowed = context.tenants()
        found += await asyncio.to_thread(_jobs, context, text, allowed)
        found += await asyncio.to_thread(_sweeps, context, wanted, allowed)
        found += _nodes(context, wanted)
        found += await asyncio.to_thread(_tenants, context, wanted, allowed)
    return [asdict(each) for each in found]


def _jobs(context: PageContext, text: str, allowed: tuple[str, ...] | None) -> list[SearchHit]:
    records = context.service.records
    rows, total = records.find(JobSearch(text=text, tenants=allowed, limit=MAX_EACH))
    found = [
        SearchHit(
            kind="job",
            title=f"{row.id} {row.name}",
            about=f"{row.state}, {row.owner or row.tenant}, {words.ago(row.submitted_s)}",
            target=f"/jobs/{row.id}",
        )
        for row in sorted(rows, key=lambda row: row.id != text)
    ]
    if total > len(rows):
        found.append(
            SearchHit(kind="jobs", title=f"All {total:,} jobs with “{text}”", about="", target=f"/jobs?q={quote(text)}")
        )
    return found


def _sweeps(context: PageContext, wanted: str, allowed: tuple[str, ...] | None) -> list[SearchHit]:
    if context.service.sweeps is None:
        return []
    rows = context.service.records.sweeps.page(tenants=allowed, live_only=False, limit=SWEEPS_READ)
    return [
        SearchHit(
            kind="sweep",
            title=f"{row.id} {row.name}",
            about=f"{row.state}, {row.owner}, {words.ago(row.created_s)}",
            target=f"/sweeps/{row.id}",
        )
        for row in rows
        if wanted in row.name.casefold() or wanted == row.id or wanted in row.owner.casefold()
    ][:MAX_EACH]


def _nodes(context: PageContext, wanted: str) -> list[SearchHit]:
    found = []
    for account in context.service.control.state.inventory.nodes:
        node = account.node
        if account.removed or wanted not in str(node.id).casefold():
            continue
        about = f"{words.plural(node.devices, 'device')}, rack {node.rack}"
        target = f"/cluster?rack={quote(str(node.rack))}"
        found.append(SearchHit(kind="node", title=str(node.id), about=about, target=target))
        if len(found) == MAX_EACH:
            break
    return found


def _tenants(context: PageContext, wanted: str, allowed: tuple[str, ...] | None) -> list[SearchHit]:
    names = [name for name in context.service.records.tenant_names() if allowed is None or name in allowed]
    return [
        SearchHit(kind="tenant", title=name, about="its jobs", target=f"/jobs?tenant={quote(name)}")
        for name in names
        if wanted in name.casefold()
    ][:MAX_EACH]
