"""Alembic's entry point; uses the connection that `migrate` passes in."""

from __future__ import annotations

from alembic import context

from rota.store.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
