"""What a worker process has: the engine that runs analyses, and the jobs of studies."""
