"""The credentials from a pod's imagePullSecrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PullSecret:
    """A decoded pull secret and where it came from. Never printed: it holds credentials."""

    namespace: str
    name: str
    uid: str
    docker_config: Mapping[str, object] = field(repr=False)
    """The "auths" document: registry -> {auth | username, password | identitytoken}."""
