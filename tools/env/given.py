"""A runtime that somebody else started, where tests otherwise have a containerd of their own.

Only its CRI socket is configured. Its process is the one that listens there, according to the
kernel. Tests pause and kill it, and start it again with the command line and environment it had.
The caller provides a command that loads images into its store: the CRI can only pull.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import tarfile
from pathlib import Path

from tools.env.abilities import abilities
from tools.env.containerd import Containerd
from tools.env.cri import RawRuntime
from tools.env.images import BUSYBOX, PAUSE, busybox_image, pause_image, write_archive
from tools.env.process import CommandError, Daemon, write_pid


class GivenRuntime(Containerd):
    """Stands where tests have a `Containerd`; `directory` holds what belongs to the tests."""

    def __init__(self, endpoint: str, directory: Path, load_images: str) -> None:
        """``load_images``: a shell command that loads ``$IMAGE`` of the archive ``$ARCHIVE``.

        Raises CommandError for an endpoint that is no unix socket, and grpc.RpcError where nobody
        answers.
        """
        if not endpoint.startswith("unix:///"):
            raise CommandError(f"--runtime {endpoint}: must be unix:///path")
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.endpoint = endpoint
        self.socket = Path(endpoint.removeprefix("unix://"))
        self._load_images = load_images
        self._daemon = Daemon("runtime", directory)
        self.log = self._daemon.log
        self._follow()
        self._abilities: dict[str, bool] = {}

    @property
    def abilities(self) -> dict[str, bool]:
        """Its abilities by name: determined once, with sandboxes, so not while an agent uses it."""
        if not self._abilities:
            with RawRuntime(self.socket) as raw:
                self._abilities = abilities(raw)
        return self._abilities

    def start(self, sandbox_image: str = PAUSE) -> None:
        """Start the program as it ran before, if it does not run, and wait until it is ready."""
        del sandbox_image  # the runtime's own setting
        if self.pid is None:
            self._daemon.start(self._command, env=self._environment)
        self.wait_ready()

    def import_images(self, archive: Path | None = None) -> None:
        """Load the images of an archive; without one, the pause and busybox images if missing."""
        if archive is None:
            with RawRuntime(self.socket) as raw:
                if raw.has_image(PAUSE) and raw.has_image(BUSYBOX):
                    return
            archive = write_archive(self.directory / "images.tar", pause_image(), busybox_image())
        if not self._load_images:
            raise CommandError(
                f"{self.endpoint} lacks the images of {archive}: pass --load-images COMMAND"
            )
        for name in _names(archive):
            subprocess.run(
                ["sh", "-ec", self._load_images],
                env={**os.environ, "ARCHIVE": str(archive), "IMAGE": name},
                check=True,
            )

    def trust(self, server: str) -> None:
        """Nothing: the runtime has to pull from registries on 127.0.0.1 without TLS by itself."""

    def ctr(self, *arguments: str | Path) -> str:
        """Not available: only the containerd of the tests has ctr."""
        raise CommandError(f"{self.endpoint} is no containerd of the tests: no ctr {arguments}")

    def remove(self) -> list[str]:
        """Remove its pods; the runtime keeps running."""
        self._remove_pods()
        return []

    def _follow(self) -> None:
        """Record the process that listens at the socket, and its command line and environment."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.socket))
            peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid, _, _ = struct.unpack("3i", peer)
        process = Path(f"/proc/{pid}")
        parts = (process / "cmdline").read_bytes().split(b"\0")[:-1]
        program = (process / "exe").readlink()
        self._command: list[str | Path] = [program, *(word.decode() for word in parts[1:])]
        pairs = (process / "environ").read_bytes().split(b"\0")[:-1]
        self._environment = dict(pair.decode().split("=", 1) for pair in pairs)
        write_pid(self.directory / "runtime.pid", pid)


def _names(archive: Path) -> list[str]:
    """The names of the images in an archive of `write_archive`."""
    with tarfile.open(archive) as file:
        index = file.extractfile("index.json")
        assert index is not None
        manifests = json.load(index)["manifests"]
    return [each["annotations"]["org.opencontainers.image.ref.name"] for each in manifests]
