"""Errors in building the sandbox or container config of a pod, as types.

The messages reach users as waiting reasons and events: they name the container and the field, and
never hold a value of a secret.
"""

from __future__ import annotations

from enum import StrEnum


class SpecField(StrEnum):
    """Fields of a spec, or of the node's configuration, with a cause of their own in explain."""

    SUB_PATH = "subPath"
    RUNTIME_CLASS = "runtimeClassName"
    RUN_AS_NON_ROOT = "runAsNonRoot"
    RESOLV_CONF = "resolvConf"
    NODE_ADDRESS = "nodeAddress"


class ConfigError(ValueError):
    """Something of the pod cannot be configured as the spec requires."""

    about: SpecField | None = None
    """The field that it is about, where that is distinguished."""


class SandboxConfigError(ConfigError):
    """The pod's sandbox cannot be configured as the spec requires."""


class RuntimeClassError(SandboxConfigError):
    """The pod's RuntimeClass does not exist, or could not be read."""

    about = SpecField.RUNTIME_CLASS


class ContainerConfigError(ConfigError):
    """The container cannot be configured as the spec requires (CreateContainerConfigError)."""


class SubPathError(ContainerConfigError):
    """A volumeMount's subPath is not usable."""

    about = SpecField.SUB_PATH


class RunAsNonRootError(ContainerConfigError):
    """The container may not run as root, and would, or it is unclear."""

    about = SpecField.RUN_AS_NON_ROOT


class NodeAddressError(ContainerConfigError):
    """The container reads an address of the node, which has none yet."""

    about = SpecField.NODE_ADDRESS


def about(error: Exception) -> SpecField | None:
    """The field that any error is about, where that is distinguished."""
    return error.about if isinstance(error, ConfigError) else None
