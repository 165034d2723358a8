"""HTTP details that routes share: negotiation, paging, conditional requests, encodings of arrays, connections."""
