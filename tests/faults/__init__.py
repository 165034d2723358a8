"""Processes killed, disks full, files damaged: what stays true."""
