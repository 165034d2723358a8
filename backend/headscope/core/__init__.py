"""The nouns that every other package uses. Importing this package does not import torch."""
