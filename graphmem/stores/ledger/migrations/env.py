"""Runs the migrations for alembic, on the connection and in the transaction in which `Ledger` opens a database."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=False)
context.run_migrations()
