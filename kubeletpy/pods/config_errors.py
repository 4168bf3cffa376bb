"""What can go wrong when building a sandbox or container config from a pod: errors as types.

The messages reach users as waiting reasons and events: they name the container and the field, and
never hold a value of a secret.
"""

from __future__ import annotations


class SandboxConfigError(ValueError):
    """The pod's sandbox cannot be configured as the spec asks."""


class ContainerConfigError(ValueError):
    """The container cannot be configured as the spec asks (CreateContainerConfigError)."""
