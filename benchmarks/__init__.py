"""Measurements next to peer tools, in the same run: python -m benchmarks [name ...]"""
