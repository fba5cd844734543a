"""What was changed at run time outlives the server: the cluster, and what accounts have had."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """A place for it; a manager of an older Rota goes on with the cluster that it is given."""
    op.create_table(
        "settings",
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
