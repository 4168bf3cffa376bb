"""Which images a registry pattern means: ``host[:port][/path]``, globs in the parts of the host.

Pure.

A pattern fits when the ports are equal, the hosts have as many dot-separated parts, each part of
the host matches its glob, and the path of the pattern begins the image's. Source: kubernetes.io,
"Images", interpretation of config.json; CredentialProvider.matchImages. Must never do I/O.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

MAX_PATTERN = 2048
"""Longest pattern looked at, in characters."""
MAX_HOST = 255
"""No host's name is longer; a glob of more is made to cost time."""
_GLOB = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Repository:
    """A full repository name (``docker.io/library/busybox``) taken apart once, to match often."""

    host_port: str
    host: tuple[str, ...]
    port: str
    path: str

    @classmethod
    def parse(cls, name: str) -> Repository:
        """Take a name without tag and digest apart."""
        host_port, _, path = name.partition("/")
        host, port = _split_port(host_port)
        return cls(host_port, tuple(host.split(".")), port, f"/{path}")


@dataclass(frozen=True, slots=True)
class RegistryPattern:
    """A pattern, taken apart."""

    host: tuple[str, ...]
    port: str
    path: str
    text: str
    """Sorts patterns: in reverse order the longer of two paths on one host comes first."""

    @classmethod
    def parse(cls, pattern: object) -> RegistryPattern | None:
        """Take a pattern apart; None when it is none.

        A scheme, a query and Docker's API version (``/v1/``) are no part of a repository name.
        """
        if not isinstance(pattern, str) or not pattern or len(pattern) > MAX_PATTERN:
            return None
        location = pattern.removeprefix("https://").removeprefix("http://")
        location = location.split("?", 1)[0].split("#", 1)[0]
        host_port, _, path = location.partition("/")
        path = f"/{path}"
        for version in ("/v1", "/v2"):
            if path == version or path.startswith(f"{version}/"):
                path = path[len(version) :]
        path = path if path != "/" else ""
        host, port = _split_port(host_port.rsplit("@", 1)[-1])
        if not host or len(host) > MAX_HOST:
            return None
        return cls(tuple(host.split(".")), port, path, f"{host_port}{path}")

    @property
    def is_glob(self) -> bool:
        """Whether its host stands for several: to match those costs more."""
        return any(char in _GLOB for part in self.host for char in part)

    def fits(self, repository: Repository) -> bool:
        """Whether images of a repository are meant."""
        return (
            self.port == repository.port
            and len(self.host) == len(repository.host)
            and repository.path.startswith(self.path)
            and all(
                part == glob or (not _GLOB.isdisjoint(glob) and fnmatch.fnmatchcase(part, glob))
                for part, glob in zip(repository.host, self.host, strict=True)
            )
        )


def _split_port(host_port: str) -> tuple[str, str]:
    host, colon, port = host_port.rpartition(":")
    if colon and port.isdigit():
        return host, port
    return host_port, ""
