"""A device plugin for tests: gives the null device under another name, and what goes with it."""
