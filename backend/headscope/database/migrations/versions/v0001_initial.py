"""The tables of the first release."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create all tables."""
    _create_jobs()
    _create_users()
    _create_results()


def _create_jobs() -> None:
    """Create the tables of jobs, of whose turn it is, and of workers."""
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("batch", sa.Text),
        sa.Column("task", sa.Text, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("recipe", sa.Text, nullable=False),
        sa.Column("tokens", sa.Integer),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("fraction", sa.Double, nullable=False),
        sa.Column("stage", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("run", sa.BigInteger, nullable=False),
        sa.Column("worker", sa.Text, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("started", sa.Double),
        sa.Column("finished", sa.Double),
        sa.Column("sent", sa.Double),
        sa.Column("queue", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
    )
    op.create_index("jobs_queue", "jobs", ["status", "owner", "priority", "created", "id"])
    op.create_index("jobs_task", "jobs", ["task"])
    op.create_index("jobs_kind", "jobs", ["kind", "created"])
    op.create_index("jobs_batch", "jobs", ["batch"])
    sent = sa.text("status = 'queued' AND sent IS NOT NULL")
    op.create_index("jobs_sent", "jobs", ["owner", "task"], sqlite_where=sent, postgresql_where=sent)
    op.create_table(
        "owners",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("served", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "workers",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("seen", sa.Double, nullable=False),
    )


def _create_users() -> None:
    """Create the tables of users, and of what they may read."""
    op.create_table(
        "grants",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("requested", sa.Double, nullable=False),
    )
    op.create_index("grants_id", "grants", ["id"])
    op.create_table(
        "shares",
        sa.Column("share_key", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.UniqueConstraint("id", "owner", name="shares_id_owner"),
    )
    op.create_table(
        "users",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("sha256", sa.Text, unique=True),
        sa.Column("created", sa.Double, nullable=False),
    )


def _create_results() -> None:
    """Create the tables of the index of stored results."""
    op.create_table(
        "results",
        sa.Column("store", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("used", sa.Double, nullable=False),
    )
    op.create_index("results_used", "results", ["store", "used"])
    op.create_table(
        "stores",
        sa.Column("store", sa.Text, primary_key=True),
        sa.Column("tidied", sa.Double, nullable=False),
        sa.Column("complete", sa.Boolean, nullable=False),
    )


def downgrade() -> None:
    """Remove all tables."""
    for name in ("stores", "results", "users", "shares", "grants", "workers", "owners", "jobs"):
        op.drop_table(name)
