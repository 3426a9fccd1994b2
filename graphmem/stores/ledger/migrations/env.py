"""Runs the migrations for alembic, on the connection and in the transaction of `schema_migration.ensure_schema`."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=False)
context.run_migrations()
