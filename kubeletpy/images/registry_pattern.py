"""Which images a registry pattern matches: ``host[:port][/path]``, globs in parts of the host.

Pure.

A pattern matches when the ports are equal and the pattern's path is a prefix of the image's. The
hosts must have the same number of dot-separated parts, and each part must match its glob. Source:
kubernetes.io, "Images", interpretation of config.json; CredentialProvider.matchImages. Must never
do I/O.
"""

from __future__ import annotations

import fnmatch

from kubeletpy.structs import Struct

MAX_PATTERN = 2048
"""Longest pattern parsed, in characters."""
MAX_HOST = 255
"""No hostname is longer; a glob with more is made to cost time."""
_GLOB = frozenset("*?[")


class Repository(Struct, frozen=True):
    """A full repository name (``docker.io/library/busybox``) parsed once, matched often."""

    host_port: str
    host: tuple[str, ...]
    port: str
    path: str

    @classmethod
    def parse(cls, name: str) -> Repository:
        """Parse a name without tag and digest."""
        host_port, _, path = name.partition("/")
        host, port = _split_port(host_port)
        return cls(host_port, tuple(host.split(".")), port, f"/{path}")


class RegistryPattern(Struct, frozen=True):
    """A parsed pattern."""

    host: tuple[str, ...]
    port: str
    path: str
    text: str
    """Sort key: in reverse order the longer of two paths on one host comes first."""

    @classmethod
    def parse(cls, pattern: object) -> RegistryPattern | None:
        """Parse a pattern; None when it is invalid.

        A scheme, a query and Docker's API version (``/v1/``) are not part of a repository name.
        """
        if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN:
            return None
        location = pattern.removeprefix("https://").removeprefix("http://")
        location = location.partition("?")[0].partition("#")[0]
        host_port, _, path = location.partition("/")
        path = f"/{path}"
        for version in ("/v1", "/v2"):
            if path == version or path.startswith(f"{version}/"):
                path = path[len(version) :]
        path = path if path != "/" else ""
        host, port = _split_port(host_port.rpartition("@")[2])
        if not host or len(host) > MAX_HOST:
            return None
        return cls(tuple(host.split(".")), port, path, f"{host_port}{path}")

    @property
    def is_glob(self) -> bool:
        """Whether its host matches several hosts: matching those costs more."""
        return any(char in _GLOB for part in self.host for char in part)

    def fits(self, repository: Repository) -> bool:
        """Whether it matches images of a repository."""
        return (
            self.port == repository.port
            and len(self.host) == len(repository.host)
            and repository.path.startswith(self.path)
            and all(
                part == glob if _GLOB.isdisjoint(glob) else fnmatch.fnmatchcase(part, glob)
                for part, glob in zip(repository.host, self.host, strict=True)
            )
        )


def _split_port(host_port: str) -> tuple[str, str]:
    host, colon, port = host_port.rpartition(":")
    if colon and port.isdigit():
        return host, port
    return host_port, ""
