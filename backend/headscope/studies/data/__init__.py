"""Data sets: read files as streams of rows, and list the rows that cannot be used. Independent of what is done with the rows."""
