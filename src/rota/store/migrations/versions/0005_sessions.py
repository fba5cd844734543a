"""Chain the audit log by hashes, and keep to which account a user's name belongs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from rota.store.audit import START, chained_hash

revision = "0005"
down_revision = "0004"
PIECE = 1000


def upgrade() -> None:
    """Add columns and tables; entries of an older Rota are chained in the order of their numbers."""
    op.add_column("audit", sa.Column("hash", sa.String(64), nullable=False, server_default=""))
    op.create_table(
        "audit_head",
        sa.Column("n", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
    )
    op.create_table(
        "identities",
        sa.Column("name", sa.String(128), primary_key=True),
        sa.Column("issuer", sa.String(512), nullable=False),
        sa.Column("subject", sa.String(256), nullable=False),
    )
    _chain(op.get_bind())


def _chain(connection: sa.Connection) -> None:
    audit = sa.table("audit", *(sa.column(name) for name in ("n", "at_s", "who", "what", "thing", "detail", "hash")))
    head = sa.table("audit_head", sa.column("n"), sa.column("hash"))
    last, before = 0, START
    change = sa.update(audit).where(audit.c.n == sa.bindparam("key")).values(hash=sa.bindparam("new_hash"))
    while True:
        found = connection.execute(sa.select(audit).where(audit.c.n > last).order_by(audit.c.n).limit(PIECE)).all()
        if not found:
            break
        changes = []
        for row in found:
            before = chained_hash(before, row.n, row._mapping)
            changes.append({"key": row.n, "new_hash": before})
        connection.execute(change, changes)
        last = int(found[-1].n)
    connection.execute(sa.insert(head), {"n": last, "hash": before})
