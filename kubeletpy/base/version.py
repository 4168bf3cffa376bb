"""The version of the project. Pure, and apart: builds of both distributions read nothing else."""

VERSION = "0.1.0"
"""Version of kubeletpy."""
