"""Requests that the API passes on to the node's own server, and the node's usage."""
