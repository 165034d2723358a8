"""HTTP that knows nothing of Headscope: negotiation, conditional requests, paging, arrays as bytes."""
