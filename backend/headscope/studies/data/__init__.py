"""Data sets: a file becomes rows to analyse, one read at a time; what can't be used is named. Nothing here knows what becomes of them."""
