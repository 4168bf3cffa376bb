"""What is asked of an API server, by subject: requests as data."""
