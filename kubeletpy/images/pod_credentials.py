"""Credentials that a pod may present: its pull secrets, the node's files, credential providers.

They are tried in this order (docs/reference/behaviour.md, g3), and looked up once per container
start, only when a pull or a pull record needs them. Must never log or keep what it finds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from kubeletpy.base.structs import Component
from kubeletpy.images import credentials
from kubeletpy.images.reference import parse_reference
from kubeletpy.pods.pod import Pod, PullSecret

logger = logging.getLogger(__name__)


class NodeCredentials(Component):
    """The credentials of the node, from the first readable one of docker's configuration files.

    The files are read again whenever a pull needs them: they change without notice.
    """

    paths: Sequence[Path] = ()
    """In order of preference, as default_paths returns them."""

    def __post_init__(self) -> None:
        self._reported: set[Path] = set()

    async def keyring(self) -> credentials.Keyring:
        """Return the current content of the files; an empty keyring when there are none."""
        return await asyncio.to_thread(self._read_keyring)

    def _read_keyring(self) -> credentials.Keyring:
        for path in self.paths:
            config = self._read_one(path)
            if config is not None:
                return credentials.Keyring([(config, None)])
        return credentials.Keyring()

    def _read_one(self, path: Path) -> Mapping[str, object] | None:
        try:
            with path.open("rb") as file:
                return credentials.parse_docker_config(file.read(credentials.MAX_DOCUMENT + 1))
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return None
        except (OSError, credentials.MalformedPullSecret) as error:
            if path not in self._reported:
                self._reported.add(path)
                logger.warning(
                    "registry credentials file skipped",
                    extra={"path": str(path), "error": str(error)},
                )
            return None


def default_paths(root: Path, home: Path | None) -> tuple[Path, ...]:
    """Return where the kubelet searches, ``config.json`` before the legacy ``.dockercfg``.

    ``root`` is the kubelet's root directory, ``home`` the user's.
    """
    configs = [root / "config.json"]
    legacy = [root / ".dockercfg"]
    if home is not None:
        configs.append(home / ".docker" / "config.json")
        legacy.append(home / ".dockercfg")
    configs.append(Path("/.docker/config.json"))
    legacy.append(Path("/.dockercfg"))
    return (*configs, *legacy)


class CredentialProviders(Protocol):
    """Programs that provide credentials: :class:`kubeletpy.images.providers.provider.Plugins`."""

    async def keyring(self, repository: str, pod: Pod) -> credentials.Keyring:
        """Return credentials for images of a repository; a failing provider contributes none."""


class PodCredentials(Component):
    """Credentials of one pod for one image, looked up at most once."""

    node: NodeCredentials
    providers: CredentialProviders | None
    pod: Pod
    image: str
    secrets: Sequence[PullSecret]

    def __post_init__(self) -> None:
        self._found: Sequence[credentials.Credential] | None = None

    async def get(self) -> Sequence[credentials.Credential]:
        """Return all matches in the order in which they are tried.

        A login may appear several times, once per source.
        """
        if self._found is None:
            repository = parse_reference(self.image).repository
            own = credentials.Keyring(
                (each.docker_config, credentials.SecretSource(each.uid, each.namespace, each.name))
                for each in self.secrets
            )
            keyrings = [own, await self.node.keyring()]
            if self.providers is not None:
                keyrings.append(await self.providers.keyring(repository, self.pod))
            self._found = credentials.find_credentials(keyrings, repository)
        return self._found
