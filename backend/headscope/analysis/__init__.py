"""An analysis: its request, the memory it needs, the pipeline that computes it, and its result."""
