"""Who makes a request, and what they may do."""
