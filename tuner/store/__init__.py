"""The only SQL. ``open_store(url)`` gives a ``Store``; one module per aggregate works on it.

Every function of the aggregates takes the Session of ``store.reading()`` (one snapshot) or
``store.writing()`` (one transaction, committed at the end, rolled back on an exception).
"""

from tuner.store.database import Store, open_store

__all__ = ["Store", "open_store"]
