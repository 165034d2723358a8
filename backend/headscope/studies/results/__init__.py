"""What is read of a finished study: its arrays by name, heads that are found, tables, and files for other programs."""
