"""Rarely used kinds of volumes: their code is loaded with the first volume."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from kubeletpy.volumes.claims.on_disk import Found
from kubeletpy.volumes.claims.plugin import VolumePlugin


class LatePlugin:
    """Stands for a plugin; see :class:`kubeletpy.volumes.claims.plugin.VolumePlugin`."""

    def __init__(self, name: str, kind: str, root: Path, load: Callable[[], VolumePlugin]) -> None:
        """Args:
        name: of the plugin.
        kind: the field of its sources.
        root: the kubelet's root directory.
        load: makes the plugin.
        """
        self.name = name
        self.kinds = frozenset({kind})
        self._root = root
        self._plugin = cache(load)

    def __getattr__(self, name: str) -> Any:
        """All that is not here is the plugin's."""
        return getattr(self._plugin(), name)

    def find_on_disk(self) -> Found:
        """Its volumes on disk; nothing is loaded when there are none. Blocks."""
        places = (f"plugins/{self.name}", f"pods/*/volume*/{self.name.replace('/', '~')}")
        there = any(next(self._root.glob(place), None) is not None for place in places)
        return self._plugin().find_on_disk() if there else Found()

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Nothing changes."""
