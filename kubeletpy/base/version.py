"""The version of the project, which both distributions read from here. Pure."""

VERSION = "0.1.0"
"""Version of kubeletpy."""
