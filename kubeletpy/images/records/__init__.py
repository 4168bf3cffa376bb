"""Which images this node pulled, and with whose credentials: what pods may use without pulling."""
