"""The database of durable facts: a SQLite file of an embedded server, or the PostgreSQL of a cluster, with one schema and the same statements."""

from .engine import NOW, REQUEST_SECONDS, WORKER_SECONDS, Database
from .sqlite import recover

__all__ = ["NOW", "REQUEST_SECONDS", "WORKER_SECONDS", "Database", "recover"]
