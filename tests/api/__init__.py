"""The REST interface, asked from outside."""
