"""The tables as they were in the beginning; a new database is made in its newest form, so there is nothing to do."""

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Nothing: this is where every database began."""
