"""Image registries on this machine: a real one, and one whose user sends the layers.

The real one, docker-registry, is open or behind a password; it needs the Debian packages
docker-registry, skopeo and apache2-utils (htpasswd).
"""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from tools.env.debian import cache_dir
from tools.env.images import Image, write_archive
from tools.env.ports import free_port
from tools.env.process import Daemon, run
from tools.env.waiting import wait_until

_PATH = re.compile(r"/v2/([^?]+)/(manifests|blobs)/([^?]+)(?:\?.*)?")
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
PACKAGES = ("docker-registry", "skopeo", "apache2-utils")


class Registry:
    """A registry at `server` ("ADDRESS:PORT"); `user` and `password` are set if it needs them."""

    def __init__(self, directory: Path, *, authenticated: bool, address: str = "127.0.0.1") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.port = free_port()
        self.server = f"{address}:{self.port}"
        self.url = f"http://{self.server}"
        self.user = "puller" if authenticated else ""
        self.password = secrets.token_urlsafe(12) if authenticated else ""
        self._daemon = Daemon("registry", directory)
        self.log = self._daemon.log

    def start(self) -> None:
        """Start it and wait until it answers."""
        settings = {
            "version": 0.1,
            "log": {"level": "info"},
            "storage": {
                "filesystem": {"rootdirectory": str(self.directory / "data")},
                "delete": {"enabled": True},
            },
            "http": {"addr": self.server},
        }
        if self.user:
            users = self.directory / "htpasswd"
            users.write_text(run("htpasswd", "-nbB", self.user, self.password))
            settings["auth"] = {"htpasswd": {"realm": "registry", "path": str(users)}}
        file = self.directory / "config.yml"
        file.write_text(json.dumps(settings))  # every JSON document is a YAML document
        self._daemon.start(["docker-registry", "serve", file])
        wait_until(self._answers, f"the registry {self.url}", give_up=self._daemon.died)

    def stop(self) -> None:
        """End it; what was pushed stays for the next start."""
        self._daemon.stop()

    def remove(self) -> None:
        """End it and remove what was pushed."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def push(self, image: Image, repository: str) -> str:
        """Push an image as `repository` ("team/app:1"); returns the full name for a pod to use."""
        archive = write_archive(self.directory / "push.tar", image)
        name = f"{self.server}/{repository}"
        source = f"oci-archive:{archive}"
        login = ["--dest-creds", f"{self.user}:{self.password}"] if self.user else []
        copy = ["skopeo", "--insecure-policy", "copy", "--dest-tls-verify=false"]
        run(*copy, *login, source, f"docker://{name}")
        archive.unlink()
        return name

    def pull_secret(self) -> dict[str, dict[str, dict[str, str]]]:
        """The content of a `.dockerconfigjson` that may pull from it."""
        return {"auths": {self.server: {"username": self.user, "password": self.password}}}

    def requests(self) -> list[str]:
        """The lines of its log that are requests, for counting pulls."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [line for line in lines if "response completed" in line or "authoriz" in line]

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(self.server, timeout=2)
        try:
            connection.request("GET", "/v2/")
            return connection.getresponse().status in {200, 401}
        finally:
            connection.close()


def default_directory() -> Path:
    """Where a registry that is started by hand keeps its data."""
    return cache_dir() / "registry"


class Send(Protocol):
    """How a paced registry sends a blob."""

    def __call__(
        self, repository: str, digest: str, content: BinaryIO, end: int, out: BufferedIOBase
    ) -> None:
        """Write the content from where it stands up to ``end``; an OSError ends the answer."""


class PacedRegistry(ThreadingHTTPServer):
    """A registry over plain HTTP on loopback; ``serve_forever`` runs it.

    Attributes:
        address: ADDRESS:PORT, the beginning of its images' names.
    """

    daemon_threads = True

    def __init__(self, directory: Path, send: Send) -> None:
        """``directory``: for the blobs."""
        super().__init__(("127.0.0.1", 0), _PacedHandler)
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self.send = directory, send
        self.address = f"127.0.0.1:{self.server_port}"
        self._digests: dict[str, str] = {}

    def add_blob(self, content: bytes) -> str:
        """Store a blob; returns its digest."""
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.blob(digest).write_bytes(content)
        return digest

    def add_manifest(self, name: str, manifest: Mapping[str, Any]) -> None:
        """Store an image's manifest under REPOSITORY:TAG."""
        self._digests[name] = self.add_blob(json.dumps(manifest).encode())

    def blob(self, digest: str) -> Path:
        """The file of a blob."""
        return self.directory / digest.removeprefix("sha256:")

    def manifest(self, repository: str, reference: str) -> str:
        """The digest of a manifest; the reference is a tag or that digest."""
        return self._digests.get(f"{repository}:{reference}", reference)


class _PacedHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: PacedRegistry

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None:
        """Write nothing to the output."""

    def _answer(self) -> None:
        found = _PATH.fullmatch(self.path)
        if found is None:  # whether this is a registry
            self._send_headers(200, {"Content-Length": "0"})
            return
        repository, kind, reference = found.groups()
        if kind == "manifests":
            digest = self.server.manifest(repository, reference)
            content = self.server.blob(digest).read_bytes()
            about = {
                "Content-Type": json.loads(content)["mediaType"],
                "Docker-Content-Digest": digest,
                "Content-Length": str(len(content)),
            }
            self._send_headers(200, about)
            if self.command == "GET":
                self.wfile.write(content)
        else:
            self._answer_blob(repository, reference)

    def _answer_blob(self, repository: str, digest: str) -> None:
        file = self.server.blob(digest)
        size = file.stat().st_size
        requested = _RANGE.fullmatch(self.headers.get("Range", ""))
        first = int(requested[1]) if requested else 0
        end = int(requested[2]) + 1 if requested and requested[2] else size
        headers = {"Content-Length": str(end - first)}
        if requested:
            headers["Content-Range"] = f"bytes {first}-{end - 1}/{size}"
        self._send_headers(206 if requested else 200, headers)
        if self.command == "GET":
            with suppress(OSError), file.open("rb") as content:  # a pull may be canceled
                content.seek(first)
                self.server.send(repository, digest, content, end, self.wfile)

    def _send_headers(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
