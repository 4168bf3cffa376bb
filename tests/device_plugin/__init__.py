"""A device plugin for tests: gives a device under another name, and what goes with it."""
