"""The contract that both deployments fulfil for jobs and results."""
