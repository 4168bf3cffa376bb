"""The error of a start that fails. Pure.

Apart: every module of the package raises it, and the package itself imports those modules.
"""

from __future__ import annotations


class LaunchError(Exception):
    """The agent can't start here; the message states what to do."""
