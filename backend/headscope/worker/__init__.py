"""A worker process: the engine that runs analyses, and the jobs of studies."""
