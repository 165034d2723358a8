"""Studies: aggregates over a data set. Rows are analysed in chunks whose aggregates are merged in a fixed order, so results do not depend on the workers."""
