"""ASGI middleware: metrics, security, access, the audit log, request bodies, large responses."""
