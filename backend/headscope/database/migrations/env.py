"""Run by Alembic: migrates the tables on the connection that `schema.py` hands over, in its transaction."""

from alembic import context

from headscope.database.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
