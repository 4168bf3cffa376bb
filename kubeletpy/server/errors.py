"""Why the agent's server can't serve. Pure."""

from __future__ import annotations


class ServerError(Exception):
    """The server can't serve; the text states which setting and what to do."""
