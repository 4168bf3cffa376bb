"""Which running container an ephemeral container attaches to. A pure function."""

from __future__ import annotations

from kubeletpy.base.api import types as api
from kubeletpy.pods.runtime_status import ContainerConfigError, PodRuntimeStatus


def target_id(status: PodRuntimeStatus, container: api.Container) -> str:
    """The container whose processes an ephemeral container will see, "" for none.

    Raises:
        ContainerConfigError: it is not running.
    """
    name = container.get("targetContainerName")
    if not isinstance(name, str) or not name:
        return ""
    target = status.newest(name)
    if target is None or not target.running:
        raise ContainerConfigError(f'unable to find target container "{name}"')
    return target.id
