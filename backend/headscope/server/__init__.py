"""A server process: the service, admission of requests, data sets, studies, accounts, limits and checks."""
