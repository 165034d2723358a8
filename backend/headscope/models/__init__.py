"""Models: what exists (catalog), where it is safe to read it from (safety), how it becomes a module (loading), text to tokens (tokens)."""
