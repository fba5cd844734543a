"""Jobs say what went wrong in a word for programs, beside the message for people."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """A column for it; of jobs that ended before, nothing is known but the message."""
    op.add_column("jobs", sa.Column("failure", sa.String(32)))
