"""A real image registry (docker-registry) on this machine, open or behind a password.

Needs the Debian packages docker-registry, skopeo and apache2-utils (htpasswd).
"""

from __future__ import annotations

import http.client
import json
import secrets
import shutil
from pathlib import Path

from tools.env.debian import cache_dir
from tools.env.images import Image, write_archive
from tools.env.ports import free_port
from tools.env.process import Daemon, run
from tools.env.waiting import wait_until

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
