"""ASGI middleware: metrics, security, access, request bodies, large responses, cached reads."""
