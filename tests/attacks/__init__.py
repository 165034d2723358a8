"""Attacks by anonymous clients, users and holders of share keys, and their effect on other users."""
