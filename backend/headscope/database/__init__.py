"""The database of durable facts: a SQLite file of an embedded server, or the PostgreSQL of a cluster, with one schema and the same statements."""

from .engine import NOW, Database
from .sqlite import recover

__all__ = ["NOW", "Database", "recover"]
