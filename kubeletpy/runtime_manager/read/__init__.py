"""Reads the runtime's answers into plain data."""
