"""Queries about jobs: one job, pages, searches, and past jobs."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Engine, FromClause, Row, func, or_, select

from rota.store.schema import jobs

Json = dict[str, Any]
MOST_IDS = 500
"""How many ids one statement names."""
FINAL = ("succeeded", "failed", "cancelled")
_members = jobs.alias("members")
_LISTED = [column for column in jobs.c if column.name not in ("job", "live")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which jobs to list, newest first; `before` is the last sequence number of the previous page."""

    states: tuple[str, ...] = ()
    live_only: bool = False
    tenants: tuple[str, ...] | None = None
    name: str | None = None
    array: str | None = None
    """Only the jobs of this array."""
    collapsed: bool = False
    """Whether the first of the matching jobs of an array stands for all of them."""
    before: int | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSearch:
    """Which jobs to find, in which order, and which slice of the result."""

    states: tuple[str, ...] = ()
    tenants: tuple[str, ...] | None = None
    text: str = ""
    """Matches a part of the name or owner, or the whole id."""
    also: tuple[str, ...] = ()
    """Ids of jobs that match the text in another way."""
    owner: str | None = None
    """Only the jobs of this user."""
    array: str | None = None
    """Only the jobs of this array; without it, the first matching job of an array stands for all of them."""
    order: str = "seq"
    descending: bool = True
    offset: int = 0
    limit: int = 50


def _where(query: Query, of: FromClause = jobs) -> list[ColumnElement[bool]]:
    """The conditions of a page."""
    wanted: list[ColumnElement[bool]] = []
    if query.live_only:
        wanted.append(of.c.state.not_in(FINAL))
    if query.states:
        wanted.append(of.c.state.in_(query.states))
    if query.tenants is not None:
        wanted.append(of.c.tenant.in_(query.tenants))
    if query.name is not None:
        wanted.append(of.c.name == query.name)
    if query.array is not None:
        wanted.append(of.c.array_id == query.array)
    return wanted


def _matching(search: JobSearch, of: FromClause = jobs) -> list[ColumnElement[bool]]:
    """The conditions of a search."""
    wanted: list[ColumnElement[bool]] = []
    if search.states:
        wanted.append(of.c.state.in_(search.states))
    if search.tenants is not None:
        wanted.append(of.c.tenant.in_(search.tenants))
    if search.array is not None:
        wanted.append(of.c.array_id == search.array)
    if search.owner is not None:
        wanted.append(of.c.owner == search.owner)
    if search.text:
        text = search.text
        wanted.append(
            or_(
                of.c.id == text,
                of.c.name.icontains(text, autoescape=True),
                of.c.owner.icontains(text, autoescape=True),
                of.c.id.in_(search.also[:MOST_IDS]),
            )
        )
    return wanted


def _first_of_array(matching: Sequence[ColumnElement[bool]]) -> ColumnElement[bool]:
    """Whether a job is in no array, or the first of the matching ones in its array."""
    first = (
        select(func.min(_members.c.seq))
        .where(_members.c.array_id == jobs.c.array_id, *matching)
        .correlate(jobs)
        .scalar_subquery()
    )
    return or_(jobs.c.array_id.is_(None), jobs.c.seq == first)


class JobRecords:
    """Read access to the jobs in the database, from any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def job(self, job_id: str) -> Row[Any] | None:
        """Return a job's record."""
        with self._engine.connect() as connection:
            return connection.execute(select(*_LISTED).where(jobs.c.id == job_id)).first()

    def some(self, job_ids: Collection[str]) -> Sequence[Row[Any]]:
        """Return the records of jobs, as far as there are any."""
        found: list[Row[Any]] = []
        wanted = list(job_ids)
        with self._engine.connect() as connection:
            for first in range(0, len(wanted), MOST_IDS):
                some = select(*_LISTED).where(jobs.c.id.in_(wanted[first : first + MOST_IDS]))
                found.extend(connection.execute(some).all())
        return found

    def after(self, seq: int, limit: int) -> Sequence[Row[Any]]:
        """Return the next jobs after a sequence number, oldest first."""
        found = select(*_LISTED).where(jobs.c.seq > seq).order_by(jobs.c.seq).limit(limit)
        with self._engine.connect() as connection:
            return connection.execute(found).all()

    def page(self, query: Query) -> Sequence[Row[Any]]:
        """Return a page of jobs, newest first."""
        wanted = _where(query)
        if query.collapsed and query.array is None:
            wanted.append(_first_of_array(_where(query, _members)))
        if query.before is not None:
            wanted.append(jobs.c.seq < query.before)
        found = select(*_LISTED).where(*wanted).order_by(jobs.c.seq.desc()).limit(query.limit)
        with self._engine.connect() as connection:
            return connection.execute(found).all()

    def array_counts(self, arrays: Collection[str]) -> dict[str, dict[str, int]]:
        """Return the number of jobs by state of each array."""
        wanted = (
            select(jobs.c.array_id, jobs.c.state, func.count())
            .where(jobs.c.array_id.in_(arrays))
            .group_by(jobs.c.array_id, jobs.c.state)
        )
        found: dict[str, dict[str, int]] = {}
        if arrays:
            with self._engine.connect() as connection:
                for array_id, state, count in connection.execute(wanted):
                    found.setdefault(array_id, {})[state] = int(count)
        return found

    def find(self, search: JobSearch) -> tuple[Sequence[Row[Any]], int]:
        """Return a slice of the matching jobs, and the total number of matches."""
        wanted = _matching(search)
        if search.array is None:
            wanted.append(_first_of_array(_matching(search, _members)))
        column = jobs.c[search.order]
        order = column.desc().nulls_last() if search.descending else column.asc().nulls_last()
        found = select(*_LISTED).where(*wanted).order_by(order, jobs.c.seq.desc())
        with self._engine.connect() as connection:
            total = connection.execute(select(func.count()).select_from(jobs).where(*wanted)).scalar_one()
            rows = connection.execute(found.offset(search.offset).limit(search.limit)).all()
        return rows, int(total)

    def alive_at(self, at_s: float) -> Sequence[Any]:
        """Return the jobs submitted by a time and not ended then: id, tenant, submission, first start, and the job."""
        columns = (jobs.c.id, jobs.c.tenant, jobs.c.submitted_s, jobs.c.started_s, jobs.c.job)
        ended = jobs.c.ended_s.is_(None) | (jobs.c.ended_s > at_s)
        with self._engine.connect() as connection:
            return connection.execute(select(*columns).where(jobs.c.submitted_s <= at_s, ended)).all()

    def owners_of_ended(self, ids: Collection[str]) -> dict[str, str]:
        """Return the owners of those of the jobs that have ended, the first that ended first."""
        found: list[Any] = []
        wanted = sorted(ids)
        with self._engine.connect() as connection:
            for begin in range(0, len(wanted), MOST_IDS):
                which = jobs.c.id.in_(wanted[begin : begin + MOST_IDS]) & jobs.c.state.in_(FINAL)
                found += connection.execute(select(jobs.c.id, jobs.c.owner, jobs.c.ended_s).where(which)).all()
        return {row.id: row.owner for row in sorted(found, key=lambda row: (row.ended_s or 0.0, row.id))}

    def live_texts(self, ids: Sequence[str]) -> dict[str, str]:
        """Return where jobs stand, as stored, by id."""
        found: dict[str, str] = {}
        with self._engine.connect() as connection:
            for first in range(0, len(ids), 5000):
                wanted = select(jobs.c.id, jobs.c.live).where(jobs.c.id.in_(ids[first : first + 5000]))
                found |= {row.id: row.live for row in connection.execute(wanted)}
        return found

    def titles(self, ids: Sequence[str]) -> dict[str, tuple[str, str, str]]:
        """Return the name, tenant and owner of jobs, by id."""
        found: dict[str, tuple[str, str, str]] = {}
        with self._engine.connect() as connection:
            for first in range(0, len(ids), MOST_IDS):
                which = jobs.c.id.in_(ids[first : first + MOST_IDS])
                rows = connection.execute(select(jobs.c.id, jobs.c.name, jobs.c.tenant, jobs.c.owner).where(which))
                found |= {row.id: (row.name, row.tenant, row.owner) for row in rows}
        return found

    def latest_named(self, name: str, tenant: str) -> list[str]:
        """Return the ids of a tenant's newest job of a name, and of those of that name submitted with it."""
        of_name = (jobs.c.name == name) & (jobs.c.tenant == tenant)
        newest = select(func.max(jobs.c.submitted_s)).where(of_name).scalar_subquery()
        wanted = select(jobs.c.id).where(of_name, jobs.c.submitted_s == newest).order_by(jobs.c.seq)
        with self._engine.connect() as connection:
            return list(connection.execute(wanted).scalars())

    def ended_since(self, since_s: float, limit: int) -> Sequence[Any]:
        """Return the jobs that ended at or after a time, latest first: id, times, job, job file and counters."""
        columns = (jobs.c.id, jobs.c.submitted_s, jobs.c.ended_s, jobs.c.job, jobs.c.spec, jobs.c.live)
        wanted = (
            select(*columns)
            .where(jobs.c.state.in_(FINAL), jobs.c.ended_s >= since_s)
            .order_by(jobs.c.ended_s.desc())
            .limit(limit)
        )
        with self._engine.connect() as connection:
            return connection.execute(wanted).all()

    def specs_of_unfinished(self) -> Mapping[str, str]:
        """Return the job files of unfinished jobs as stored, by id."""
        with self._engine.connect() as connection:
            rows = connection.execute(select(jobs.c.id, jobs.c.spec).where(jobs.c.state.not_in(FINAL))).all()
        return {row.id: row.spec for row in rows}

    def succeeded(self, since_s: float, limit: int) -> Sequence[Any]:
        """Return the jobs that succeeded since a time, newest first, with their requests and run times."""
        columns = (jobs.c.id, jobs.c.name, jobs.c.tenant, jobs.c.owner, jobs.c.attempt, jobs.c.spec)
        wanted = (
            select(*columns, jobs.c.started_s, jobs.c.ended_s)
            .where(jobs.c.state == "succeeded", jobs.c.started_s.is_not(None), jobs.c.ended_s >= since_s)
            .order_by(jobs.c.seq.desc())
            .limit(limit)
        )
        with self._engine.connect() as connection:
            return connection.execute(wanted).all()

    def ran_out(self, failures: Sequence[str], since_s: float, limit: int = 500) -> Sequence[Any]:
        """Return the jobs submitted since a time that failed in a given way, even if retried, newest first."""
        retried = (jobs.c.failures > 0) & jobs.c.spec.contains('"raised"')
        wanted = (
            select(jobs.c.id, jobs.c.state, jobs.c.failure, jobs.c.spec)
            .where(jobs.c.submitted_s >= since_s, jobs.c.failure.in_(failures) | retried)
            .order_by(jobs.c.seq.desc())
            .limit(limit)
        )
        with self._engine.connect() as connection:
            return connection.execute(wanted).all()

    def succeeded_count(self) -> int:
        """Return the number of successful jobs in the database."""
        with self._engine.connect() as connection:
            wanted = select(func.count()).select_from(jobs).where(jobs.c.state == "succeeded")
            return int(connection.execute(wanted).scalar_one())

    def counts(self) -> Mapping[tuple[str, str], int]:
        """Return the number of jobs by tenant and state."""
        wanted = select(jobs.c.tenant, jobs.c.state, func.count()).group_by(jobs.c.tenant, jobs.c.state)
        with self._engine.connect() as connection:
            return {(row[0], row[1]): int(row[2]) for row in connection.execute(wanted)}

    def tenant_names(self) -> list[str]:
        """Return the tenants with jobs; takes one index look-up per tenant, for any number of jobs."""
        names: list[str] = []
        with self._engine.connect() as connection:
            name = connection.execute(select(func.min(jobs.c.tenant))).scalar()
            while name is not None:
                names.append(str(name))
                name = connection.execute(select(func.min(jobs.c.tenant)).where(jobs.c.tenant > name)).scalar()
        return names

    def spec(self, job_id: str) -> Json | None:
        """Return a job file as submitted, including secrets."""
        with self._engine.connect() as connection:
            found = connection.execute(select(jobs.c.spec).where(jobs.c.id == job_id)).scalar()
        return None if found is None else json.loads(found)
