"""Alembic's entry: it works on the connection that `migrate` hands it."""

from __future__ import annotations

from alembic import context

from rota.store.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
