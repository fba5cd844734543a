"""Keep the Unix account under which a job's tasks run, and that which a token names."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the columns; jobs of an older Rota get their account from the settings when they start."""
    op.add_column("jobs", sa.Column("account", sa.String(64)))
    op.add_column("tokens", sa.Column("account", sa.String(64)))
