"""The manager's records: jobs, journal steps, answers to repeated requests. One batch is one transaction."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from sqlalchemy import Connection, Engine, Row, bindparam, delete, func, insert, or_, select, update

from rota.store.accounts.holds import HoldRecords, write_holds
from rota.store.accounts.outbox import OutboxRecords, write_messages
from rota.store.accounts.usage import UsageRecords, UsageRow, write_usage
from rota.store.audit import append_audit
from rota.store.forecasts import ForecastRecords, write_forecasts
from rota.store.jobs import FINAL, JobRecords, Json
from rota.store.schema import answers, jobs, memory, nodes, segments, settings, steps, sweeps
from rota.store.sealing import Sealer
from rota.store.sweeps import SweepRecords, write_sweeps

_DIGEST = re.compile(r'"snapshot": ?\{[^{}]*"digest": ?"([0-9a-f]{64})"')
SMALL = 64
_NEW_JOB, _NEW_STEP = insert(jobs), insert(steps)
_REVISE = (
    update(jobs)
    .where(jobs.c.id == bindparam("key"))
    .values(
        job=bindparam("new_job"),
        spec=bindparam("new_spec"),
        name=bindparam("new_name"),
        tenant=bindparam("new_tenant"),
    )
)


@dataclass(slots=True)
class WriteBatch:
    """Changes that are written in one transaction."""

    new_jobs: list[Json] = field(default_factory=list)
    changed_jobs: list[Json] = field(default_factory=list)
    steps: list[Json] = field(default_factory=list)
    answers: list[Json] = field(default_factory=list)
    revised_jobs: list[Json] = field(default_factory=list)
    """Jobs whose request changes: `key`, `new_job`, `new_spec`, `new_name` and `new_tenant`."""
    drained: dict[str, bool] = field(default_factory=dict)
    audit: list[Json] = field(default_factory=list)
    memory: str | None = None
    """The policy's memory as JSON, if it is to be written."""
    settings: dict[str, str] = field(default_factory=dict)
    forecasts: list[Json] = field(default_factory=list)
    """New forecasts."""
    outcomes: list[Json] = field(default_factory=list)
    """What became of jobs that were forecast: `key`, `state`, `started_s` and `ended_s`."""
    sweeps: list[Json] = field(default_factory=list)
    """Sweeps that are new or changed, as whole rows."""
    trials: list[Json] = field(default_factory=list)
    """Trials of sweeps that are new or changed, as whole rows."""
    usage: list[UsageRow] = field(default_factory=list)
    """Device time to be added to the accounts."""
    holds: dict[str, Json | None] = field(default_factory=dict)
    """Jobs that a budget holds, or holds no longer (None)."""
    messages: list[Json] = field(default_factory=list)
    """Messages to be sent."""
    segment: tuple[int, Json] | None = None
    """A new journal segment that begins with these steps: the number of the first, and the header."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return self == WriteBatch()

    @property
    def is_small(self) -> bool:
        """Whether writing it is quick."""
        return len(self.new_jobs) + len(self.changed_jobs) < SMALL


class Records(JobRecords):
    """The database of a manager. One batch is written at a time; any thread may read."""

    def __init__(self, engine: Engine, sealer: Sealer | None = None) -> None:
        super().__init__(engine)
        self.forecasts = ForecastRecords(engine)
        self.sweeps = SweepRecords(engine)
        self.usage = UsageRecords(engine)
        self.holds = HoldRecords(engine)
        self.outbox = OutboxRecords(engine)
        self._sealer = sealer
        """Encrypts secrets as they are written; only the manager has one, readers of the database have none."""
        place = engine.url.database if engine.dialect.name == "sqlite" else None
        self._file = None if not place or place == ":memory:" else (place, _identity(place))
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
        """The URL of the database, including its password."""
        return self._engine.url.render_as_string(hide_password=False)

    @property
    def is_near(self) -> bool:
        """Whether the database is local, so that writing in a separate thread would cost more than it saves."""
        return self._engine.dialect.name == "sqlite"

    def write(self, *batches: WriteBatch, again: bool = False) -> Callable[[], None]:
        """Write batches atomically; they are durable once the returned function has been called.

        `again`: an earlier try failed, maybe only after it was durable; a batch whose first step is there is left out.
        """
        connection = self._engine.connect()
        try:
            connection.begin()
            for batch in batches:
                if not (again and batch.steps and self._has_step(connection, batch.steps[0]["n"])):
                    self._write(connection, batch)
        except BaseException:
            connection.close()
            raise

        def make_durable() -> None:
            with connection:
                connection.commit()

        return make_durable

    def _has_step(self, connection: Connection, number: int) -> bool:
        return connection.execute(select(steps.c.n).where(steps.c.n == number)).first() is not None

    def _write(self, connection: Connection, batch: WriteBatch) -> None:
        if batch.new_jobs:
            new = [{**row, "spec": self._seal(row["spec"], row["id"])} for row in batch.new_jobs]
            connection.execute(_NEW_JOB, new)
        if batch.changed_jobs:
            connection.execute(self._change, batch.changed_jobs)
        if batch.revised_jobs:
            revised = [{**row, "new_spec": self._seal(row["new_spec"], row["key"])} for row in batch.revised_jobs]
            connection.execute(_REVISE, revised)
        if batch.segment is not None:
            first, header = batch.segment
            connection.execute(delete(segments).where(segments.c.first_step == first))
            connection.execute(insert(segments), {"first_step": first, "header": json.dumps(header)})
        if batch.steps:
            connection.execute(_NEW_STEP, batch.steps)
        if batch.answers:
            connection.execute(insert(answers), batch.answers)
        for node_id, drained in batch.drained.items():
            connection.execute(delete(nodes).where(nodes.c.id == node_id))
            connection.execute(insert(nodes), {"id": node_id, "drained": int(drained)})
        append_audit(connection, batch.audit)
        for key, value in batch.settings.items():
            connection.execute(delete(settings).where(settings.c.key == key))
            connection.execute(insert(settings), {"key": key, "value": value})
        if batch.forecasts or batch.outcomes:
            write_forecasts(connection, batch.forecasts, batch.outcomes)
        if batch.sweeps or batch.trials:
            write_sweeps(connection, batch.sweeps, batch.trials, self._seal)
        if batch.usage:
            write_usage(connection, batch.usage)
        write_holds(connection, batch.holds)
        if batch.messages:
            write_messages(connection, batch.messages)
        if batch.memory is not None:
            connection.execute(delete(memory))
            connection.execute(insert(memory), {"body": batch.memory})

    def _seal(self, spec: str, job_id: str) -> str:
        return spec if self._sealer is None else self._sealer.seal(spec, job_id)

    def opened_spec(self, row: Row[Any]) -> str:
        """Return the job file of a job's row with its secrets, where this process has the key."""
        return self.opened(row.spec, row.id)

    def opened(self, spec: str, owner_id: str) -> str:
        """Return a job file as JSON with its secrets, where this process has the key."""
        return spec if self._sealer is None else self._sealer.unseal(spec, owner_id)

    # -- what a restart needs --------------------------------------------------------------------

    def live_jobs(self) -> list[Row[Any]]:
        """Return the unfinished jobs, and the ended jobs that they depend on, in order of submission."""
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

    def whole_jobs(self, names: Sequence[str]) -> list[Row[Any]]:
        """Return all columns of some jobs, ended or not; those that are not known are left out."""
        with self._engine.connect() as connection:
            return list(connection.execute(select(jobs).where(jobs.c.id.in_(names)).order_by(jobs.c.seq)))

    def next_seq(self) -> int:
        """Return the sequence number of the next job."""
        with self._engine.connect() as connection:
            last = connection.execute(select(func.max(jobs.c.seq))).scalar()
        return 0 if last is None else int(last) + 1

    def last_number(self) -> int:
        """Return the highest id of a job; 0 if there is none, or ids are no numbers. It may exceed the next `seq`."""
        with self._engine.connect() as connection:
            by_number = (func.length(jobs.c.id).desc(), jobs.c.id.desc())
            last = connection.execute(select(jobs.c.id).order_by(*by_number).limit(1)).scalar()
        return int(last) if last is not None and last.isdecimal() else 0

    def drained(self) -> list[str]:
        """Return the drained nodes."""
        with self._engine.connect() as connection:
            return list(connection.execute(select(nodes.c.id).where(nodes.c.drained == 1)).scalars())

    def setting(self, key: str) -> Any:
        """Return the setting of a name, or None."""
        with self._engine.connect() as connection:
            found = connection.execute(select(settings.c.value).where(settings.c.key == key)).scalar()
        return None if found is None else json.loads(found)

    def memory(self) -> Any:
        """Return the policy's last memory, or None."""
        with self._engine.connect() as connection:
            found = connection.execute(select(memory.c.body)).scalar()
        return None if found is None else json.loads(found)

    # -- the journal -----------------------------------------------------------------------------

    def begin_segment(self, header: Json) -> int:
        """Begin a journal segment at the next step; return the number of that step."""
        following = func.coalesce(select(func.max(steps.c.n) + 1).scalar_subquery(), 0)
        with self._engine.begin() as connection:
            # Write first: after a read, SQLite refuses a write if another connection has written meanwhile.
            connection.execute(delete(segments).where(segments.c.first_step == following))
            first = int(connection.execute(select(following)).scalar_one())
            connection.execute(insert(segments), {"first_step": first, "header": json.dumps(header)})
        return first

    def segments(self) -> list[tuple[int, Json]]:
        """Return the journal segments: the first step and the header of each."""
        with self._engine.connect() as connection:
            rows = connection.execute(select(segments).order_by(segments.c.first_step)).all()
        return [(row.first_step, json.loads(row.header)) for row in rows]

    def last_policy(self) -> str | None:
        """Return the policy of the last journal segment with its options, or None."""
        with self._engine.connect() as connection:
            found = connection.execute(
                select(segments.c.header).order_by(segments.c.first_step.desc()).limit(1)
            ).scalar()
        return None if found is None else str(json.loads(found)["policy"])

    def steps(self, first: int = 0, before: int | None = None) -> Iterator[str]:
        """Yield the journal's steps as stored."""
        wanted = select(steps.c.body).where(steps.c.n >= first)
        if before is not None:
            wanted = wanted.where(steps.c.n < before)
        with self._engine.connect() as connection:
            yield from connection.execution_options(yield_per=1000).execute(wanted.order_by(steps.c.n)).scalars()

    def last_step(self) -> int:
        """Return the number of the last step; -1 if there is none."""
        with self._engine.connect() as connection:
            found = connection.execute(select(func.max(steps.c.n))).scalar()
        return -1 if found is None else int(found)

    def first_step_since(self, at_s: float) -> int:
        """Return the first step at or after a time, by binary search; one past the last if there is none."""
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

    def last_steps(self, after: int, limit: int) -> list[tuple[int, str]]:
        """Return the latest steps with a number above one, in order, with their numbers."""
        wanted = select(steps.c.n, steps.c.body).where(steps.c.n > after).order_by(steps.c.n.desc()).limit(limit)
        with self._engine.connect() as connection:
            return [(row.n, row.body) for row in reversed(connection.execute(wanted).all())]

    def steps_with(self, words: Sequence[str], first: int, before: int) -> Sequence[str]:
        """Return the steps from `first` up to `before` that contain one of some texts."""
        named = or_(*(steps.c.body.contains(word, autoescape=True) for word in words))
        wanted = select(steps.c.body).where(steps.c.n >= first, steps.c.n < before, named)
        with self._engine.connect() as connection:
            return connection.execute(wanted.order_by(steps.c.n)).scalars().all()

    def steps_about(self, job_id: str, first: int, before: int) -> Sequence[str]:
        """Return the steps from `first` up to `before` that name a job."""
        named = steps.c.body.contains(f'"{job_id}"', autoescape=True)
        wanted = select(steps.c.body).where(steps.c.n >= first, steps.c.n < before, named)
        with self._engine.connect() as connection:
            return connection.execute(wanted.order_by(steps.c.n)).scalars().all()

    # -- retention -------------------------------------------------------------------------------

    def drop_before(self, at_s: float, *, answers_before_s: float) -> list[str]:
        """Delete jobs that ended before a time, and journal segments that ended by then; return the jobs' ids.

        The newest job is always kept: new sequence numbers continue from it and are never reused.
        """
        old = jobs.c.state.in_(FINAL) & (jobs.c.ended_s < at_s) & (jobs.c.seq < self.next_seq() - 1)
        kept_segments = self.segments()
        over = [first for (first, _), (_, header) in pairwise(kept_segments) if header["snapshot"]["now_s"] < at_s]
        self.forecasts.drop_before(at_s)
        self.sweeps.drop_before(at_s)
        self.outbox.drop_before(at_s)
        with self._engine.begin() as connection:
            connection.execute(delete(answers).where(answers.c.created_s < answers_before_s))
            deleted = list(connection.execute(select(jobs.c.id).where(old)).scalars())
            connection.execute(delete(jobs).where(old))
            if over:
                kept = next(first for first, _ in kept_segments if first > over[-1])
                connection.execute(delete(steps).where(steps.c.n < kept))
                connection.execute(delete(segments).where(segments.c.first_step < kept))
        return deleted

    def snapshots_named(self) -> set[str]:
        """Return the digests of the snapshots that jobs and sweeps name."""
        found: set[str] = set()
        with self._engine.connect() as connection:
            for column in (jobs.c.spec, sweeps.c.job):
                wanted = select(column).where(column.contains('"snapshot"', autoescape=True))
                for spec in connection.execution_options(yield_per=1000).execute(wanted).scalars():
                    found.update(_DIGEST.findall(spec))
        return found

    # -- queries ---------------------------------------------------------------------------------

    def answer(self, key: str) -> tuple[str, Json] | None:
        """Return the digest and the answer of the request with this key, or None."""
        with self._engine.connect() as connection:
            row = connection.execute(select(answers).where(answers.c.key == key)).first()
        return None if row is None else (row.digest, json.loads(row.answer))

    @property
    def loss(self) -> str | None:
        """That the database's file is no longer the one that was opened; None if it is, or if there is no file."""
        if self._file is None or _identity(self._file[0]) == self._file[1]:
            return None
        return f"the database {self._file[0]} was removed or replaced while it was in use"

    def ping(self) -> None:
        """Raise if the database does not answer."""
        with self._engine.connect() as connection:
            connection.execute(select(1))

    def close(self) -> None:
        """Close the connections to the database."""
        self._engine.dispose()


def _identity(path: str) -> tuple[int, int] | None:
    """Return what tells a file from all others; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
