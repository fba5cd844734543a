"""What the search box of every page finds, of what the visitor may see.

Pages, jobs by name, owner and id, then by any of their words (labels, commands, messages, output), sweeps, templates,
data sets, budgets, nodes and tenants.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

from rota.core.errors import RotaError
from rota.store.jobs import JobSearch
from rota.web import words
from rota.web.page_context import PageContext
from rota.web.parts.data_sets import visible_data_sets

MAX_EACH = 6
MAX_TEXT = 128
LEAST_WORD = 3
"""Characters from which on outputs are searched: shorter texts are beginnings of almost everything."""
MAX_EXCERPT = 120
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
        jobs, total = await asyncio.to_thread(_jobs, context, text, allowed)
        found += jobs
        if total > MAX_EACH:
            title = f"All {total:,} jobs named like “{text}”"
            found.append(SearchHit(kind="jobs", title=title, about="", target=f"/jobs?q={quote(text)}"))
        found += await asyncio.to_thread(_sweeps, context, wanted, allowed)
        found += _kept(context, wanted)
        found += [
            SearchHit(kind="data set", title=each.name, about=each.about or each.path, target="/data-sets")
            for each in await visible_data_sets(context)
            if wanted in f"{each.name}\n{each.about}\n{each.path}".casefold()
        ][:MAX_EACH]
        found += _nodes(context, wanted)
        found += await asyncio.to_thread(_tenants, context, wanted, allowed)
        found += await _by_words(context, text, allowed, {hit.target for hit in jobs})
    return [asdict(each) for each in found]


def _jobs(context: PageContext, text: str, allowed: tuple[str, ...] | None) -> tuple[list[SearchHit], int]:
    """Return jobs by name, owner or id, and how many there are."""
    rows, total = context.service.records.find(JobSearch(text=text, tenants=allowed, limit=MAX_EACH))
    ordered = sorted(rows, key=lambda row: row.id != text)
    return [_job_hit(row, f"{row.owner or row.tenant}, {words.ago(row.submitted_s)}") for row in ordered], total


def _job_hit(row: Any, about: str) -> SearchHit:
    return SearchHit(kind="job", title=f"{row.id} {row.name}", about=f"{row.state}, {about}", target=f"/jobs/{row.id}")


async def _by_words(
    context: PageContext, text: str, allowed: tuple[str, ...] | None, known: set[str]
) -> list[SearchHit]:
    """Return jobs that have the words anywhere, as in their output, with the text around; known ones are left out."""
    index, records = context.service.search, context.service.records
    if index is None or len(text) < LEAST_WORD:
        return []
    try:
        async with index.turns.turn(context.principal().name):
            found = await asyncio.to_thread(index.search, text, allowed, MAX_EACH + len(known))
    except (RotaError, OSError):  # without a word to search for, or the index can't be read now
        return []
    rows = {row.id: row for row in await asyncio.to_thread(records.some, [each.job_id for each in found])}
    hits = [
        _job_hit(rows[each.job_id], f"{each.field}: {' '.join(each.excerpt.split())[:MAX_EXCERPT]}")
        for each in found
        if each.job_id in rows and (allowed is None or rows[each.job_id].tenant in allowed)
    ]
    return [hit for hit in hits if hit.target not in known][:MAX_EACH]


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


def _kept(context: PageContext, wanted: str) -> list[SearchHit]:
    """Return templates and budgets."""
    service, principal = context.service, context.principal()
    found: list[SearchHit] = []
    if service.templates is not None and context.may_submit:
        found += [
            SearchHit(
                kind="template",
                title=each.name,
                about=each.file.description,
                target=f"/templates?name={quote(f'{each.tenant or str()}/{each.name}')}",
            )
            for each in service.templates.visible(principal.tenants)
            if wanted in each.name.casefold() or wanted in each.file.description.casefold()
        ][:MAX_EACH]
    if service.accounts is not None:
        found += [
            SearchHit(kind="budget", title=use.budget.name, about=use.budget.words(use.used), target="/usage")
            for use in service.accounts.budgets.all()
            if wanted in use.budget.name.casefold() and principal.may_see(use.budget.tenant)
        ][:MAX_EACH]
    return found


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
