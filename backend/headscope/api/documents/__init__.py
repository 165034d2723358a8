"""The JSON and HTML documents of the interface, put together from jobs and stored results."""
