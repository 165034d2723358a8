"""Users of an identity provider, and their sessions."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns and the table. A user without a token has been revoked."""
    op.add_column("users", sa.Column("subject", sa.Text))
    op.add_column("users", sa.Column("revoked", sa.Double))
    op.create_index("users_subject", "users", ["subject"], unique=True)
    op.execute("UPDATE users SET revoked = created WHERE sha256 IS NULL")
    op.create_table(
        "sessions",
        sa.Column("sha256", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("expires", sa.Double, nullable=False),
    )
    op.create_index("sessions_name", "sessions", ["name"])
