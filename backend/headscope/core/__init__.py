"""The nouns that every other package speaks of. Nothing here imports torch when it is imported."""
