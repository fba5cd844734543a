"""The tables of a manager's database, the same on SQLite and PostgreSQL."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
)

HEAD = "0010"
"""The revision that this code needs; `migrations` leads to it from every older one."""

metadata = MetaData()

jobs = Table(
    "jobs",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("seq", BigInteger, nullable=False, unique=True),
    Column("name", String(128), nullable=False),
    Column("tenant", String(128), nullable=False),
    Column("owner", String(128), nullable=False, server_default=""),
    Column("account", String(64)),
    Column("state", String(16), nullable=False),
    Column("submitted_s", Float(53), nullable=False),
    Column("started_s", Float(53)),
    Column("ended_s", Float(53)),
    Column("job", Text, nullable=False),
    Column("spec", Text, nullable=False),
    Column("live", Text, nullable=False),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("exit_code", Integer),
    Column("message", Text, nullable=False, server_default=""),
    Column("failure", String(32)),
    Column("version", Integer, nullable=False, server_default="0"),
    Column("array_id", String(64)),
    Index("jobs_by_state", "state", "seq"),
    Index("jobs_by_tenant", "tenant", "seq"),
    Index("jobs_by_name", "name", "seq"),
    Index("jobs_by_array", "array_id", "seq"),
)

segments = Table(
    "segments",
    metadata,
    Column("first_step", BigInteger, primary_key=True, autoincrement=False),
    Column("header", Text, nullable=False),
)

steps = Table(
    "steps",
    metadata,
    Column("n", BigInteger, primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
)

answers = Table(
    "answers",
    metadata,
    Column("key", String(256), primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("answer", Text, nullable=False),
    Column("created_s", Float(53), nullable=False),
)

nodes = Table(
    "nodes",
    metadata,
    Column("id", String(256), primary_key=True),
    Column("drained", Integer, nullable=False),
)

memory = Table(
    "memory",
    metadata,
    Column("body", Text, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("digest", String(64), nullable=False, unique=True),
    Column("name", String(128), nullable=False),
    Column("role", String(16), nullable=False),
    Column("tenants", Text, nullable=False),
    Column("created_s", Float(53), nullable=False),
    Column("expires_s", Float(53)),
    Column("revoked_s", Float(53)),
    Column("account", String(64)),
)

identities = Table(
    "identities",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("issuer", String(512), nullable=False),
    Column("subject", String(256), nullable=False),
)

audit = Table(
    "audit",
    metadata,
    Column("n", Integer, primary_key=True, autoincrement=True),
    Column("at_s", Float(53), nullable=False),
    Column("who", String(128), nullable=False),
    Column("what", String(64), nullable=False),
    Column("thing", String(256), nullable=False),
    Column("detail", Text, nullable=False, server_default=""),
    Column("hash", String(64), nullable=False, server_default=""),
)

audit_head = Table(
    "audit_head",
    metadata,
    Column("n", BigInteger, nullable=False),
    Column("hash", String(64), nullable=False),
)

settings = Table(
    "settings",
    metadata,
    Column("key", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)

forecasts = Table(
    "forecasts",
    metadata,
    Column("n", Integer, primary_key=True, autoincrement=True),
    Column("job_id", String(64), nullable=False),
    Column("tenant", String(128), nullable=False),
    Column("cause", String(16), nullable=False),
    Column("policy", String(256), nullable=False),
    Column("basis", String(64), nullable=False),
    Column("gpus", Float(53), nullable=False),
    Column("made_s", Float(53), nullable=False),
    Column("start", Text),
    Column("end", Text),
    Column("state", String(16)),
    Column("started_s", Float(53)),
    Column("ended_s", Float(53)),
    Index("forecasts_by_job", "job_id"),
    Index("forecasts_by_time", "made_s"),
)

sweeps = Table(
    "sweeps",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("seq", BigInteger, nullable=False, unique=True),
    Column("name", String(128), nullable=False),
    Column("tenant", String(128), nullable=False),
    Column("owner", String(128), nullable=False),
    Column("role", String(16), nullable=False),
    Column("account", String(64)),
    Column("state", String(16), nullable=False),
    Column("why", Text, nullable=False, server_default=""),
    Column("created_s", Float(53), nullable=False),
    Column("ended_s", Float(53)),
    Column("file", Text, nullable=False),
    Column("job", Text, nullable=False),
    Index("sweeps_by_tenant", "tenant", "seq"),
)

trials = Table(
    "trials",
    metadata,
    Column("sweep_id", String(64), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("job_id", String(64), nullable=False),
    Column("state", String(16), nullable=False),
    Column("params", Text, nullable=False),
    Column("values", Text, nullable=False),
    Column("curve", Text, nullable=False),
    Column("why", Text, nullable=False, server_default=""),
    Column("changed_s", Float(53), nullable=False),
    Index("trials_by_job", "job_id"),
)

usage = Table(
    "usage",
    metadata,
    Column("hour_s", BigInteger, primary_key=True, autoincrement=False),
    Column("tenant", String(128), primary_key=True),
    Column("owner", String(128), primary_key=True),
    Column("project", String(128), primary_key=True),
    Column("device_type", String(128), primary_key=True),
    Column("device_s", Float(53), nullable=False),
    Column("energy_j", Float(53), nullable=False),
    Column("jobs", BigInteger, nullable=False),
)

budget_holds = Table(
    "budget_holds",
    metadata,
    Column("job_id", String(64), primary_key=True),
    Column("budget", String(128), nullable=False),
    Column("why", Text, nullable=False),
)

outbox = Table(
    "outbox",
    metadata,
    Column("n", Integer, primary_key=True, autoincrement=True),
    Column("key", String(256), nullable=False, unique=True),
    Column("channel", String(128), nullable=False),
    Column("tenant", String(128), nullable=False),
    Column("owner", String(128), nullable=False),
    Column("body", Text, nullable=False),
    Column("created_s", Float(53), nullable=False),
    Column("due_s", Float(53), nullable=False),
    Column("tries", Integer, nullable=False),
    Column("tried_s", Float(53)),
    Column("state", String(16), nullable=False),
    Column("why", Text, nullable=False, server_default=""),
    Index("outbox_by_state", "state", "due_s"),
)
