"""An image registry whose layers stop halfway until a test releases them."""

from __future__ import annotations

import json
import os
import tarfile
import threading
from dataclasses import dataclass, field
from io import BufferedIOBase
from pathlib import Path
from typing import BinaryIO

from tools.env.images import Image, write_archive
from tools.env.registry import PacedRegistry


@dataclass
class _Held:
    """The only layer of an image.

    Attributes:
        offsets: the byte at which each request for it began.
    """

    released: threading.Event = field(default_factory=threading.Event)
    offsets: list[int] = field(default_factory=list)


class HeldRegistry:
    """Serves images over plain HTTP on loopback, until :meth:`close`.

    Attributes:
        server: ADDRESS:PORT, the beginning of its images' names.
    """

    def __init__(self, directory: Path) -> None:
        """``directory``: for its files."""
        self._directory = directory
        self._layers: dict[str, _Held] = {}
        self._named: dict[str, _Held] = {}
        self._registry = PacedRegistry(directory / "held", self._send)
        self.server = self._registry.address
        threading.Thread(target=self._registry.serve_forever, daemon=True).start()

    def add(self, image: Image, repository: str) -> str:
        """Store an image as ``repository`` ("held:1"); returns its name for a pod."""
        archive = write_archive(self._directory / "held.tar", image)
        with tarfile.open(archive) as packed:
            files = {each.name: packed.extractfile(each) for each in packed.getmembers()}
            contents = {name: file.read() for name, file in files.items() if file is not None}
        archive.unlink()
        blobs = {
            self._registry.add_blob(content): content
            for name, content in contents.items()
            if name.startswith("blobs/")
        }
        (entry,) = json.loads(contents["index.json"])["manifests"]
        manifest = json.loads(blobs[entry["digest"]])
        (layer,) = manifest["layers"]
        name = f"{self.server}/{repository}"
        self._named[name] = self._layers[layer["digest"]] = _Held()
        self._registry.add_manifest(repository, manifest)
        return name

    def offsets(self, name: str) -> list[int]:
        """The byte at which each request so far for the layer of an image began."""
        return list(self._named[name].offsets)

    def release(self, name: str) -> None:
        """Serve the rest of the image's layer, now and later."""
        self._named[name].released.set()

    def close(self) -> None:
        """End the server and all its answers."""
        for each in self._layers.values():
            each.released.set()
        self._registry.shutdown()
        self._registry.server_close()

    def _send(
        self, repository: str, digest: str, content: BinaryIO, end: int, out: BufferedIOBase
    ) -> None:
        del repository
        first = content.tell()
        if held := self._layers.get(digest):
            middle = max(first, os.fstat(content.fileno()).st_size // 2)
            out.write(content.read(middle - first))
            out.flush()
            held.offsets.append(first)
            held.released.wait()
        out.write(content.read(end - content.tell()))
