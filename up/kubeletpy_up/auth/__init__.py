"""Authentication of callers, and authorization of their requests."""
