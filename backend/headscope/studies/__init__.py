"""Studies: a data set in, aggregates out. Streamed in chunks whose aggregates are merged in one order, so that the numbers are the same whoever computed them."""
