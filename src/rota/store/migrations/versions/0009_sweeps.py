"""Keep sweeps and their trials, so that searches continue after a restart."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the tables; an older Rota has no sweeps."""
    op.create_table(
        "sweeps",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("seq", sa.BigInteger, nullable=False, unique=True),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("tenant", sa.String(128), nullable=False),
        sa.Column("owner", sa.String(128), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("account", sa.String(64)),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("why", sa.Text, nullable=False, server_default=""),
        sa.Column("created_s", sa.Float(53), nullable=False),
        sa.Column("ended_s", sa.Float(53)),
        sa.Column("file", sa.Text, nullable=False),
        sa.Column("job", sa.Text, nullable=False),
    )
    op.create_index("sweeps_by_tenant", "sweeps", ["tenant", "seq"])
    op.create_table(
        "trials",
        sa.Column("sweep_id", sa.String(64), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("job_id", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("params", sa.Text, nullable=False),
        sa.Column("values", sa.Text, nullable=False),
        sa.Column("curve", sa.Text, nullable=False),
        sa.Column("why", sa.Text, nullable=False, server_default=""),
        sa.Column("changed_s", sa.Float(53), nullable=False),
    )
    op.create_index("trials_by_job", "trials", ["job_id"])
