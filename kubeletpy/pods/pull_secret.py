"""The credentials from a pod's imagePullSecrets."""

from __future__ import annotations

from collections.abc import Mapping

from kubeletpy.base.structs import Hidden, HidesFields, Struct


class PullSecret(HidesFields, Struct, frozen=True):
    """A decoded pull secret and where it came from. Never printed: it holds credentials."""

    namespace: str
    name: str
    uid: str
    docker_config: Hidden[Mapping[str, object]]
    """The "auths" document: registry -> {auth | username, password | identitytoken}."""
