"""An image registry whose layers stop halfway until a test releases them."""

from __future__ import annotations

import contextlib
import json
import re
import tarfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tools.env.images import Image, write_archive
from tools.env.ports import free_port

_PATH = re.compile(r"/v2/([^?]+)/(manifests|blobs)/([^?]+)(?:\?.*)?")
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


@dataclass
class _Stored:
    """One image.

    Attributes:
        offsets: the byte at which each request for its only layer began.
    """

    manifest: str
    media_type: str
    released: threading.Event = field(default_factory=threading.Event)
    offsets: list[int] = field(default_factory=list)


class HeldRegistry:
    """Serves images over plain HTTP on loopback, until :meth:`close`.

    Attributes:
        server: ADDRESS:PORT, the beginning of its images' names.
    """

    def __init__(self, directory: Path) -> None:
        """``directory``: for files that live shortly."""
        self._directory = directory
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, _Stored] = {}
        """Keys are REPOSITORY:TAG and digests."""
        self.layers: dict[str, _Stored] = {}
        port = free_port()
        self.server = f"127.0.0.1:{port}"
        self._http = _Server(("127.0.0.1", port), self)
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def add(self, image: Image, repository: str) -> str:
        """Store an image as ``repository`` ("held:1"); returns its name for a pod."""
        archive = write_archive(self._directory / "held.tar", image)
        with tarfile.open(archive) as packed:
            files = {each.name: packed.extractfile(each) for each in packed.getmembers()}
            contents = {name: file.read() for name, file in files.items() if file is not None}
        archive.unlink()
        blobs = {
            f"sha256:{name.rpartition('/')[2]}": content
            for name, content in contents.items()
            if name.startswith("blobs/")
        }
        (entry,) = json.loads(contents["index.json"])["manifests"]
        (layer,) = json.loads(blobs[entry["digest"]])["layers"]
        stored = _Stored(entry["digest"], entry["mediaType"])
        self.layers[layer["digest"]] = stored
        self.blobs |= blobs
        self.manifests |= {repository: stored, entry["digest"]: stored}
        return f"{self.server}/{repository}"

    def offsets(self, name: str) -> list[int]:
        """The byte at which each request so far for the layer of an image began."""
        return list(self._named(name).offsets)

    def release(self, name: str) -> None:
        """Serve the rest of the image's layer, now and later."""
        self._named(name).released.set()

    def close(self) -> None:
        """End the server and all its answers."""
        for each in self.layers.values():
            each.released.set()
        self._http.shutdown()
        self._http.server_close()

    def _named(self, name: str) -> _Stored:
        return self.manifests[name.removeprefix(f"{self.server}/")]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], registry: HeldRegistry) -> None:
        super().__init__(address, _Handler)
        self.registry = registry


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None:
        """Write nothing to the test's output."""

    def _answer(self) -> None:
        registry = self.server.registry
        found = _PATH.fullmatch(self.path)
        if found is None:  # whether this is a registry
            self._send_headers(200, {"Content-Length": "0"})
            return
        repository, kind, reference = found.groups()
        if kind == "manifests":
            named = reference if ":" in reference else f"{repository}:{reference}"
            image = registry.manifests[named]
            content = registry.blobs[image.manifest]
            about = {"Content-Type": image.media_type, "Docker-Content-Digest": image.manifest}
            self._send_headers(200, {**about, "Content-Length": str(len(content))})
            if self.command == "GET":
                self.wfile.write(content)
        else:
            self._send_blob(registry.blobs[reference], registry.layers.get(reference))

    def _send_blob(self, content: bytes, held: _Stored | None) -> None:
        requested = _RANGE.fullmatch(self.headers.get("Range", ""))
        first = int(requested[1]) if requested else 0
        end = int(requested[2]) + 1 if requested and requested[2] else len(content)
        headers = {"Content-Length": str(end - first)}
        if requested:
            headers["Content-Range"] = f"bytes {first}-{end - 1}/{len(content)}"
        self._send_headers(206 if requested else 200, headers)
        if self.command == "HEAD":
            return
        if held is not None:
            middle = max(first, len(content) // 2)
            self.wfile.write(content[first:middle])
            self.wfile.flush()
            held.offsets.append(first)
            held.released.wait()
            first = middle
        with contextlib.suppress(OSError):  # the client has canceled the pull
            self.wfile.write(content[first:end])

    def _send_headers(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
