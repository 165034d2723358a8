"""Models: the catalog, safety checks on files, loading, and the encoding of inputs as tokens."""
