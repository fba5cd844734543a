"""What the policy remembers outlives the server."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """A place for it; a policy of an older Rota begins anew."""
    op.create_table("memory", sa.Column("body", sa.Text, nullable=False))
