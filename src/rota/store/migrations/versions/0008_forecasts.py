"""Keep every forecast, with what then happened."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the table; managers of an older Rota begin without past forecasts."""
    op.create_table(
        "forecasts",
        sa.Column("n", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("job_id", sa.String(64), nullable=False),
        sa.Column("tenant", sa.String(128), nullable=False),
        sa.Column("cause", sa.String(16), nullable=False),
        sa.Column("policy", sa.String(256), nullable=False),
        sa.Column("basis", sa.String(64), nullable=False),
        sa.Column("gpus", sa.Float(53), nullable=False),
        sa.Column("made_s", sa.Float(53), nullable=False),
        sa.Column("start", sa.Text),
        sa.Column("end", sa.Text),
        sa.Column("state", sa.String(16)),
        sa.Column("started_s", sa.Float(53)),
        sa.Column("ended_s", sa.Float(53)),
    )
    op.create_index("forecasts_by_job", "forecasts", ["job_id"])
    op.create_index("forecasts_by_time", "forecasts", ["made_s"])
