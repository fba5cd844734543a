"""Keep the policy's memory over restarts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the table; policies of an older Rota start with an empty memory."""
    op.create_table("memory", sa.Column("body", sa.Text, nullable=False))
