"""Attacks by strangers, users and holders of share keys, and what other users notice of them."""
