"""Keep which array a job belongs to, so that an array can be listed as one row."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the column; arrays submitted before are listed job by job."""
    op.add_column("jobs", sa.Column("array_id", sa.String(64)))
    op.create_index("jobs_by_array", "jobs", ["array_id", "seq"])
