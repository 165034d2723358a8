"""The built wheel in empty environments, one for each Python that this machine has: without extras, and with each of them."""
