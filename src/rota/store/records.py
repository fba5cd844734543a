"""What a manager keeps: jobs, the journal's steps, answers to repeated requests. One batch is one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Row, bindparam, delete, func, insert, or_, select, update

from rota.store.schema import answers, audit, jobs, memory, nodes, segments, settings, steps

Json = dict[str, Any]
FINAL = ("succeeded", "failed", "cancelled")
SMALL = 64
_NEW_JOB, _NEW_STEP, _NEW_AUDIT = insert(jobs), insert(steps), insert(audit)
_REVISE = update(jobs).where(jobs.c.id == bindparam("key")).values(job=bindparam("new_job"), spec=bindparam("new_spec"))
_LISTED = [column for column in jobs.c if column.name not in ("job", "live")]


@dataclass(slots=True)
class Batch:
    """Changes that become durable together."""

    new_jobs: list[Json] = field(default_factory=list)
    changed_jobs: list[Json] = field(default_factory=list)
    steps: list[Json] = field(default_factory=list)
    answers: list[Json] = field(default_factory=list)
    revised_jobs: list[Json] = field(default_factory=list)
    """Jobs that ask for something else from now on: `key`, `new_job` and `new_spec`."""
    drained: dict[str, bool] = field(default_factory=dict)
    audit: list[Json] = field(default_factory=list)
    memory: str | None = None
    """What the policy remembers from now on, if that is to be written."""
    settings: dict[str, str] = field(default_factory=dict)
    stretch: tuple[int, Json] | None = None
    """A new stretch of the journal that begins with these steps: the number of the first, and its header."""

    @property
    def is_small(self) -> bool:
        """Whether it is written in no time."""
        return len(self.new_jobs) + len(self.changed_jobs) < SMALL


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which jobs to list, newest first; `before` is the last sequence number of the page before."""

    states: tuple[str, ...] = ()
    live_only: bool = False
    tenants: tuple[str, ...] | None = None
    name: str | None = None
    before: int | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Which jobs to find, in which order, and which stretch of what is found."""

    states: tuple[str, ...] = ()
    tenants: tuple[str, ...] | None = None
    text: str = ""
    """In the name or the owner, or the whole id."""
    order: str = "seq"
    descending: bool = True
    offset: int = 0
    limit: int = 50


class Records:
    """The database as the manager uses it. One batch at a time is written; reading is for any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._change = (
            update(jobs)
            .where(jobs.c.id == bindparam("key"))
            .values(
                state=bindparam("state"),
                started_s=bindparam("started_s"),
                ended_s=bindparam("ended_s"),
                live=bindparam("live"),
                attempt=bindparam("attempt"),
                failures=bindparam("failures"),
                exit_code=bindparam("exit_code"),
                failure=bindparam("failure"),
                message=bindparam("message"),
                version=jobs.c.version + 1,
            )
        )

    @property
    def url(self) -> str:
        """Where the database is, with all that is needed to open it."""
        return self._engine.url.render_as_string(hide_password=False)

    @property
    def is_near(self) -> bool:
        """Whether writing costs only computing, so that a thread of its own for it would cost more than it saves."""
        return self._engine.dialect.name == "sqlite"

    def write(self, batch: Batch) -> Callable[[], None]:
        """Write a batch, all of it or nothing; it is durable when the function that is returned has returned."""
        connection = self._engine.connect()
        try:
            connection.begin()
            self._write(connection, batch)
        except BaseException:
            connection.close()
            raise

        def make_durable() -> None:
            with connection:
                connection.commit()

        return make_durable

    def _write(self, connection: Connection, batch: Batch) -> None:
        if batch.new_jobs:
            connection.execute(_NEW_JOB, batch.new_jobs)
        if batch.changed_jobs:
            connection.execute(self._change, batch.changed_jobs)
        if batch.revised_jobs:
            connection.execute(_REVISE, batch.revised_jobs)
        if batch.stretch is not None:
            first, header = batch.stretch
            connection.execute(delete(segments).where(segments.c.first_step == first))
            connection.execute(insert(segments), {"first_step": first, "header": json.dumps(header)})
        if batch.steps:
            connection.execute(_NEW_STEP, batch.steps)
        if batch.answers:
            connection.execute(insert(answers), batch.answers)
        for node_id, drained in batch.drained.items():
            connection.execute(delete(nodes).where(nodes.c.id == node_id))
            connection.execute(insert(nodes), {"id": node_id, "drained": int(drained)})
        if batch.audit:
            connection.execute(_NEW_AUDIT, batch.audit)
        for key, value in batch.settings.items():
            connection.execute(delete(settings).where(settings.c.key == key))
            connection.execute(insert(settings), {"key": key, "value": value})
        if batch.memory is not None:
            connection.execute(delete(memory))
            connection.execute(insert(memory), {"body": batch.memory})

    # -- what a restart needs --------------------------------------------------------------------

    def live_jobs(self) -> list[Row[Any]]:
        """Jobs that have not ended, and ended ones on which they may depend, in order of submission."""
        unfinished = jobs.c.state.not_in(FINAL)
        with self._engine.connect() as connection:
            found = connection.execute(select(jobs).where(unfinished).order_by(jobs.c.seq)).all()
            known = {row.id for row in found}
            needed: dict[str, None] = {}
            for row in found:
                for name in json.loads(row.job).get("depends_on", ()):
                    if name not in known:
                        needed[name] = None
            ended = [connection.execute(select(jobs).where(jobs.c.id == name)).one() for name in needed]
        return sorted([*found, *ended], key=lambda row: row.seq)

    def next_seq(self) -> int:
        """The sequence number of the next job."""
        with self._engine.connect() as connection:
            last = connection.execute(select(func.max(jobs.c.seq))).scalar()
        return 0 if last is None else int(last) + 1

    def drained(self) -> list[str]:
        """Nodes on which nothing new may start."""
        with self._engine.connect() as connection:
            return list(connection.execute(select(nodes.c.id).where(nodes.c.drained == 1)).scalars())

    def setting(self, key: str) -> Any:
        """What was last kept under a name; None if nothing was."""
        with self._engine.connect() as connection:
            found = connection.execute(select(settings.c.value).where(settings.c.key == key)).scalar()
        return None if found is None else json.loads(found)

    def memory(self) -> Any:
        """What the policy remembered last."""
        with self._engine.connect() as connection:
            found = connection.execute(select(memory.c.body)).scalar()
        return None if found is None else json.loads(found)

    # -- the journal -----------------------------------------------------------------------------

    def begin_segment(self, header: Json) -> int:
        """A new stretch of the journal, from the next step on; the number of that step."""
        following = func.coalesce(select(func.max(steps.c.n) + 1).scalar_subquery(), 0)
        with self._engine.begin() as connection:
            # A write comes first: SQLite refuses one at once after a read if somebody else has written meanwhile.
            connection.execute(delete(segments).where(segments.c.first_step == following))
            first = int(connection.execute(select(following)).scalar_one())
            connection.execute(insert(segments), {"first_step": first, "header": json.dumps(header)})
        return first

    def segments(self) -> list[tuple[int, Json]]:
        """The stretches of the journal: where each begins, and what has to be known to run it."""
        with self._engine.connect() as connection:
            rows = connection.execute(select(segments).order_by(segments.c.first_step)).all()
        return [(row.first_step, json.loads(row.header)) for row in rows]

    def last_policy(self) -> str | None:
        """The policy of the journal's last stretch, with its options; None if nothing was ever scheduled."""
        with self._engine.connect() as connection:
            found = connection.execute(
                select(segments.c.header).order_by(segments.c.first_step.desc()).limit(1)
            ).scalar()
        return None if found is None else str(json.loads(found)["policy"])

    def steps(self, first: int = 0, before: int | None = None) -> Iterator[str]:
        """The journal's steps as they were written."""
        wanted = select(steps.c.body).where(steps.c.n >= first)
        if before is not None:
            wanted = wanted.where(steps.c.n < before)
        with self._engine.connect() as connection:
            yield from connection.execution_options(yield_per=1000).execute(wanted.order_by(steps.c.n)).scalars()

    def first_step_since(self, at_s: float) -> int:
        """The number of the first step at or after a moment, found by halving; one past the last if there is none."""
        with self._engine.connect() as connection:
            bounds = connection.execute(select(func.min(steps.c.n), func.max(steps.c.n))).one()
            low, high = (0, 0) if bounds[0] is None else (int(bounds[0]), int(bounds[1]) + 1)
            while low < high:
                middle = (low + high) // 2
                body = connection.execute(select(steps.c.body).where(steps.c.n == middle)).scalar_one()
                if float(json.loads(body)["t"]) < at_s:
                    low = middle + 1
                else:
                    high = middle
        return low

    def steps_about(self, job_id: str, first: int, before: int) -> Sequence[str]:
        """The steps of a stretch that name a job."""
        named = steps.c.body.contains(f'"{job_id}"', autoescape=True)
        wanted = select(steps.c.body).where(steps.c.n >= first, steps.c.n < before, named)
        with self._engine.connect() as connection:
            return connection.execute(wanted.order_by(steps.c.n)).scalars().all()

    # -- forgetting ------------------------------------------------------------------------------

    def drop_before(self, at_s: float, *, answers_before_s: float) -> list[str]:
        """Drop jobs that ended before a time, and journal stretches that were over by then; the jobs' ids.

        The newest job stays whatever its age: numbers are counted on from it and never given twice.
        """
        old = jobs.c.state.in_(FINAL) & (jobs.c.ended_s < at_s) & (jobs.c.seq < self.next_seq() - 1)
        stretches = self.segments()
        over = [first for (first, _), (_, header) in pairwise(stretches) if header["snapshot"]["now_s"] < at_s]
        with self._engine.begin() as connection:
            connection.execute(delete(answers).where(answers.c.created_s < answers_before_s))
            gone = list(connection.execute(select(jobs.c.id).where(old)).scalars())
            connection.execute(delete(jobs).where(old))
            if over:
                kept = next(first for first, _ in stretches if first > over[-1])
                connection.execute(delete(steps).where(steps.c.n < kept))
                connection.execute(delete(segments).where(segments.c.first_step < kept))
        return gone

    # -- looking ---------------------------------------------------------------------------------

    def job(self, job_id: str) -> Row[Any] | None:
        """One job's record."""
        with self._engine.connect() as connection:
            return connection.execute(select(*_LISTED).where(jobs.c.id == job_id)).first()

    def page(self, query: Query) -> Sequence[Row[Any]]:
        """A page of jobs, newest first."""
        wanted = select(*_LISTED).order_by(jobs.c.seq.desc()).limit(query.limit)
        if query.live_only:
            wanted = wanted.where(jobs.c.state.not_in(FINAL))
        if query.states:
            wanted = wanted.where(jobs.c.state.in_(query.states))
        if query.tenants is not None:
            wanted = wanted.where(jobs.c.tenant.in_(query.tenants))
        if query.name is not None:
            wanted = wanted.where(jobs.c.name == query.name)
        if query.before is not None:
            wanted = wanted.where(jobs.c.seq < query.before)
        with self._engine.connect() as connection:
            return connection.execute(wanted).all()

    def find(self, search: Search) -> tuple[Sequence[Row[Any]], int]:
        """A stretch of the jobs that are searched for, and how many there are in all."""
        wanted: list[ColumnElement[bool]] = []
        if search.states:
            wanted.append(jobs.c.state.in_(search.states))
        if search.tenants is not None:
            wanted.append(jobs.c.tenant.in_(search.tenants))
        if search.text:
            text = search.text
            wanted.append(
                or_(
                    jobs.c.id == text,
                    jobs.c.name.icontains(text, autoescape=True),
                    jobs.c.owner.icontains(text, autoescape=True),
                )
            )
        column = jobs.c[search.order]
        order = column.desc().nulls_last() if search.descending else column.asc().nulls_last()
        stretch = select(*_LISTED).where(*wanted).order_by(order, jobs.c.seq.desc())
        with self._engine.connect() as connection:
            total = connection.execute(select(func.count()).select_from(jobs).where(*wanted)).scalar_one()
            rows = connection.execute(stretch.offset(search.offset).limit(search.limit)).all()
        return rows, int(total)

    def alive_at(self, at_s: float) -> Sequence[Any]:
        """Jobs that had been submitted by a moment and had not ended: id, tenant, submission, the job itself."""
        columns = (jobs.c.id, jobs.c.tenant, jobs.c.submitted_s, jobs.c.started_s, jobs.c.job)
        ended = jobs.c.ended_s.is_(None) | (jobs.c.ended_s > at_s)
        with self._engine.connect() as connection:
            return connection.execute(select(*columns).where(jobs.c.submitted_s <= at_s, ended)).all()

    def latest_named(self, name: str, tenant: str) -> list[str]:
        """The ids of the newest job of a name in a tenant, and of those of that name that came together with it."""
        mine = (jobs.c.name == name) & (jobs.c.tenant == tenant)
        newest = select(func.max(jobs.c.submitted_s)).where(mine).scalar_subquery()
        wanted = select(jobs.c.id).where(mine, jobs.c.submitted_s == newest).order_by(jobs.c.seq)
        with self._engine.connect() as connection:
            return list(connection.execute(wanted).scalars())

    def past_runs(self, limit: int = 2000) -> dict[tuple[str, str], list[float]]:
        """How long the jobs that succeeded last took from start to end, by tenant and name."""
        wanted = (
            select(jobs.c.tenant, jobs.c.name, jobs.c.started_s, jobs.c.ended_s)
            .where(jobs.c.state == "succeeded", jobs.c.started_s.is_not(None))
            .order_by(jobs.c.seq.desc())
            .limit(limit)
        )
        found: dict[tuple[str, str], list[float]] = {}
        with self._engine.connect() as connection:
            for row in connection.execute(wanted):
                found.setdefault((row.tenant, row.name), []).append(row.ended_s - row.started_s)
        return found

    def succeeded(self, since_s: float, limit: int) -> Sequence[Any]:
        """Jobs that succeeded since a moment, newest first: who they were, what they asked for, how long they took."""
        columns = (jobs.c.id, jobs.c.name, jobs.c.tenant, jobs.c.owner, jobs.c.attempt, jobs.c.spec)
        wanted = (
            select(*columns, jobs.c.started_s, jobs.c.ended_s)
            .where(jobs.c.state == "succeeded", jobs.c.started_s.is_not(None), jobs.c.ended_s >= since_s)
            .order_by(jobs.c.seq.desc())
            .limit(limit)
        )
        with self._engine.connect() as connection:
            return connection.execute(wanted).all()

    def ran_out(self, failures: Sequence[str], limit: int = 500) -> Sequence[Any]:
        """Jobs that failed in one of some ways, for good or for a while, newest first: id, state, failure, request."""
        tried_again = (jobs.c.failures > 0) & jobs.c.spec.contains('"raised"')
        wanted = (
            select(jobs.c.id, jobs.c.state, jobs.c.failure, jobs.c.spec)
            .where(jobs.c.failure.in_(failures) | tried_again)
            .order_by(jobs.c.seq.desc())
            .limit(limit)
        )
        with self._engine.connect() as connection:
            return connection.execute(wanted).all()

    def succeeded_count(self) -> int:
        """How many jobs have succeeded, of those that are still known."""
        with self._engine.connect() as connection:
            wanted = select(func.count()).select_from(jobs).where(jobs.c.state == "succeeded")
            return int(connection.execute(wanted).scalar_one())

    def counts(self) -> Mapping[tuple[str, str], int]:
        """How many jobs there are of each tenant in each state."""
        wanted = select(jobs.c.tenant, jobs.c.state, func.count()).group_by(jobs.c.tenant, jobs.c.state)
        with self._engine.connect() as connection:
            return {(row[0], row[1]): int(row[2]) for row in connection.execute(wanted)}

    def tenant_names(self) -> list[str]:
        """Tenants that have, or had, jobs: each found by one look into the index, however many jobs there are."""
        names: list[str] = []
        with self._engine.connect() as connection:
            name = connection.execute(select(func.min(jobs.c.tenant))).scalar()
            while name is not None:
                names.append(str(name))
                name = connection.execute(select(func.min(jobs.c.tenant)).where(jobs.c.tenant > name)).scalar()
        return names

    def answer(self, key: str) -> tuple[str, Json] | None:
        """What a request with this key was answered, with the digest of its body."""
        with self._engine.connect() as connection:
            row = connection.execute(select(answers).where(answers.c.key == key)).first()
        return None if row is None else (row.digest, json.loads(row.answer))

    def spec(self, job_id: str) -> Json | None:
        """A job as it was submitted, secrets included."""
        with self._engine.connect() as connection:
            found = connection.execute(select(jobs.c.spec).where(jobs.c.id == job_id)).scalar()
        return None if found is None else json.loads(found)

    def audit(self, limit: int) -> Sequence[Row[Any]]:
        """Who changed what, newest first."""
        with self._engine.connect() as connection:
            return connection.execute(select(audit).order_by(audit.c.n.desc()).limit(limit)).all()

    def ping(self) -> None:
        """Raise if the database does not answer."""
        with self._engine.connect() as connection:
            connection.execute(select(1))

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()
