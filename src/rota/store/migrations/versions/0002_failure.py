"""Add the class of a job's failure, for programs, to the message for people."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the column; older jobs have only the message."""
    op.add_column("jobs", sa.Column("failure", sa.String(32)))
