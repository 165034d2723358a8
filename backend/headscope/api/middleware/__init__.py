"""What runs before and after every route: access, limits on bodies, security headers, request metrics."""
