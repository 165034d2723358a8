"""What a server process has: the service, admission, data sets, studies, accounts."""
