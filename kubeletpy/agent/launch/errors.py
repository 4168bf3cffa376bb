"""Why an agent can't start. Pure."""

from __future__ import annotations


class LaunchError(Exception):
    """The agent can't start here; the message states what to do."""
