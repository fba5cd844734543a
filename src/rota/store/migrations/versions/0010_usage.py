"""Keep the used device time by hour, the holds of budgets, and messages to be sent."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the tables; an older Rota has no accounts."""
    op.create_table(
        "usage",
        sa.Column("hour_s", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("tenant", sa.String(128), primary_key=True),
        sa.Column("owner", sa.String(128), primary_key=True),
        sa.Column("project", sa.String(128), primary_key=True),
        sa.Column("device_type", sa.String(128), primary_key=True),
        sa.Column("device_s", sa.Float(53), nullable=False),
        sa.Column("energy_j", sa.Float(53), nullable=False),
        sa.Column("jobs", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "budget_holds",
        sa.Column("job_id", sa.String(64), primary_key=True),
        sa.Column("budget", sa.String(128), nullable=False),
        sa.Column("why", sa.Text, nullable=False),
    )
    op.create_table(
        "outbox",
        sa.Column("n", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("key", sa.String(256), nullable=False, unique=True),
        sa.Column("channel", sa.String(128), nullable=False),
        sa.Column("tenant", sa.String(128), nullable=False),
        sa.Column("owner", sa.String(128), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("created_s", sa.Float(53), nullable=False),
        sa.Column("due_s", sa.Float(53), nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("tried_s", sa.Float(53)),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("why", sa.Text, nullable=False, server_default=""),
    )
    op.create_index("outbox_by_state", "outbox", ["state", "due_s"])
