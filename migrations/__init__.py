"""Alembic revisions of the store. Run by ``tuner.store.migrating`` or by Alembic itself."""
