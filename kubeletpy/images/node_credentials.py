"""Registry credentials that belong to the node: docker's configuration files.

Searched in the kubelet's root, the home directory and ``/.docker``, ``config.json`` before the
legacy ``.dockercfg``; the first readable one wins. Must never log their content.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from kubeletpy.images.credentials import Keyring
from kubeletpy.images.pull_secrets import MAX_DOCUMENT, MalformedPullSecret, parse_docker_config

logger = logging.getLogger(__name__)


class NodeCredentials:
    """Rereads the node's files whenever a pull needs them: they change without notice."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """``paths`` in order of preference; see default_paths."""
        self._paths = tuple(paths)
        self._reported: set[Path] = set()

    async def keyring(self) -> Keyring:
        """The current content of the files; an empty keyring when there are none."""
        return await asyncio.to_thread(self._read_keyring)

    def _read_keyring(self) -> Keyring:
        for path in self._paths:
            config = self._read_one(path)
            if config is not None:
                return Keyring([(config, None)])
        return Keyring()

    def _read_one(self, path: Path) -> Mapping[str, object] | None:
        try:
            with path.open("rb") as file:
                return parse_docker_config(file.read(MAX_DOCUMENT + 1))
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return None
        except (OSError, MalformedPullSecret) as error:
            if path not in self._reported:
                self._reported.add(path)
                logger.warning(
                    "registry credentials file skipped",
                    extra={"path": str(path), "error": str(error)},
                )
            return None


def default_paths(root: Path, home: Path | None) -> tuple[Path, ...]:
    """Where the kubelet searches: ``root`` is its root directory, ``home`` the user's."""
    configs = [root / "config.json"]
    legacy = [root / ".dockercfg"]
    if home is not None:
        configs.append(home / ".docker" / "config.json")
        legacy.append(home / ".dockercfg")
    configs.append(Path("/.docker/config.json"))
    legacy.append(Path("/.dockercfg"))
    return (*configs, *legacy)
