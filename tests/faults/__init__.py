"""Fault tests: killed processes, full disks and damaged files."""
