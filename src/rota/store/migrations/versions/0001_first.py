"""The first tables. New databases are created at the newest revision, so there is nothing to do."""

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Do nothing: this is the first revision."""
