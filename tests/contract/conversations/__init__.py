"""Requests to an API server as data, by subject."""
