"""JSON and HTML documents, built from jobs and stored results without a web framework."""
