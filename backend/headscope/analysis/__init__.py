"""An analysis: what is asked for, whether it fits into memory, the pipeline that computes it, and its result."""
