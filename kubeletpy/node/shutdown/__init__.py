"""Graceful node shutdown: pods end in the order of their priority before the machine goes down."""
