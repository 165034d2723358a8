"""The trace that a job belongs to."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; jobs that are queued have no trace."""
    op.add_column("jobs", sa.Column("trace", sa.Text, nullable=False, server_default=""))
