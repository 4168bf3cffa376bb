"""This project's version: the one place that says it (pyproject.toml is tested against it)."""

VERSION = "0.1.0"
"""Version of kubeletpy."""
