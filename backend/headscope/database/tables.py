"""The tables. Times are seconds since 1970 on the clock of the database.

jobs       A job, and the state of its latest run. `task` is the id of the Celery message that carries it, `sent` when it was given to the broker, and `queue` where.
           Both are empty in an embedded deployment.
owners     Owners of jobs, and the number of the turn in which each was served last.
workers    Worker processes.
grants     Which owner may read which result.
shares     Keys that open one result to anyone.
users      Users, and the SHA-256 of the token of each in hexadecimal digits: none for a user whose token was revoked, or of an identity provider.
sessions   The hashes of the secrets of users who have signed in, and when each session ends.
results    Entries of the stores of results, inputs and uploads: their bytes, and when each was last used.
stores     Shared stores: when each was tidied, and whether all of its entries are indexed.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata = MetaData()
SENT = "status = 'queued' AND sent IS NOT NULL"

jobs = Table(
    "jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("batch", Text),
    Column("task", Text, nullable=False),
    Column("payload", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("recipe", Text, nullable=False),
    Column("tokens", Integer),
    Column("owner", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("status", Text, nullable=False, default="queued"),
    Column("fraction", Double, nullable=False, default=0.0),
    Column("stage", Text, nullable=False, default="queued"),
    Column("detail", Text, nullable=False, default=""),
    Column("attempts", Integer, nullable=False, default=0),
    Column("run", BigInteger, nullable=False, default=0),
    Column("worker", Text, nullable=False, default=""),
    Column("error", Text),
    Column("created", Double, nullable=False),
    Column("started", Double),
    Column("finished", Double),
    Column("sent", Double),
    Column("queue", Text, nullable=False, default=""),
    Column("version", BigInteger, nullable=False),
    Column("trace", Text, nullable=False, default="", server_default=""),
    Index("jobs_queue", "status", "owner", "priority", "created", "id"),
    Index("jobs_task", "task"),
    Index("jobs_kind", "kind", "created"),
    Index("jobs_batch", "batch"),
    Index("jobs_sent", "owner", "task", sqlite_where=text(SENT), postgresql_where=text(SENT)),
)
owners = Table(
    "owners",
    metadata,
    Column("owner", Text, primary_key=True),
    Column("served", BigInteger, nullable=False, default=0),
)
workers = Table(
    "workers",
    metadata,
    Column("name", Text, primary_key=True),
    Column("state", Text, nullable=False),
    Column("seen", Double, nullable=False),
)
grants = Table(
    "grants",
    metadata,
    Column("owner", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("requested", Double, nullable=False),
    Index("grants_id", "id"),
)
shares = Table(
    "shares",
    metadata,
    Column("share_key", Text, primary_key=True),
    Column("id", Text, nullable=False),
    Column("owner", Text, nullable=False),
    UniqueConstraint("id", "owner", name="shares_id_owner"),
)
users = Table(
    "users",
    metadata,
    Column("name", Text, primary_key=True),
    Column("sha256", Text, unique=True),
    Column("created", Double, nullable=False),
    Column("subject", Text),
    Column("revoked", Double),
    Index("users_subject", "subject", unique=True),
)
sessions = Table(
    "sessions",
    metadata,
    Column("sha256", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("expires", Double, nullable=False),
    Index("sessions_name", "name"),
)
results = Table(
    "results",
    metadata,
    Column("store", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("bytes", BigInteger, nullable=False),
    Column("used", Double, nullable=False),
    Index("results_used", "store", "used"),
)
stores = Table(
    "stores",
    metadata,
    Column("store", Text, primary_key=True),
    Column("tidied", Double, nullable=False),
    Column("complete", Boolean, nullable=False),
)
