"""The error of a start that fails. Pure.

Apart: the command line of a rootless node needs it seconds before it needs an agent.
"""

from __future__ import annotations


class LaunchError(Exception):
    """The agent can't start here; the message states what to do."""
