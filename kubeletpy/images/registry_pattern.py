"""Which images a registry pattern matches: ``host[:port][/path]``, globs in parts of the host.

Pure.

A pattern matches when the ports are equal and the image's path begins with the components of the
pattern's path. The hosts must have the same number of dot-separated parts, and each part must match
its glob, in upper or lower case. Source: kubernetes.io, "Images", interpretation of config.json;
CredentialProvider.matchImages. Must never do I/O.
"""

from __future__ import annotations

import fnmatch

from kubeletpy.base.structs import Struct, replace

MAX_PATTERN = 2048
"""Longest pattern parsed, in characters."""
MAX_HOST = 255
"""No hostname is longer; a glob with more is made to cost time."""
_GLOB = frozenset("*?[")
_API_VERSIONS = (("v1",), ("v2",))
_HUB = ("docker.io", "index.docker.io")
"""Docker Hub: the host of its images, and that of its logins."""


class Repository(Struct, frozen=True):
    """A full repository name (``docker.io/library/busybox``) parsed once, matched often."""

    host: tuple[str, ...]
    port: str
    path: tuple[str, ...]

    @classmethod
    def parse(cls, name: str) -> Repository:
        """Parse a name without tag and digest."""
        host_port, *path = name.split("/")
        host, port = _split_port(host_port.lower())
        return cls(tuple(host.split(".")), port, tuple(path))


class RegistryPattern(Struct, frozen=True):
    """A parsed pattern."""

    host: tuple[str, ...]
    port: str
    path: tuple[str, ...]

    @classmethod
    def parse(cls, pattern: object) -> RegistryPattern | None:
        """Parse a pattern of a provider's matchImages; None when it is invalid.

        A scheme and a query are not part of a repository name.
        """
        if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN:
            return None
        scheme, separator, location = pattern.partition("://")
        if not separator:
            location = pattern
        elif scheme.lower() not in ("http", "https"):
            return None
        location = location.partition("?")[0].partition("#")[0]
        host_port, *path = location.rstrip("/").split("/")
        host, port = _split_port(host_port.rpartition("@")[2].lower())
        if not host or len(host) > MAX_HOST:
            return None
        if host == _HUB[1] and not port:
            host = _HUB[0]
        return cls(tuple(host.split(".")), port, tuple(path))

    @classmethod
    def of_login(cls, registry: object) -> RegistryPattern | None:
        """Parse the key of a login; its path may begin with the registry's API version, ``/v1/``.

        None when it is invalid.
        """
        found = cls.parse(registry)
        if found is not None and found.path[:1] in _API_VERSIONS:
            return replace(found, path=found.path[1:])
        return found

    @property
    def is_glob(self) -> bool:
        """Whether its host matches several hosts: matching those costs more."""
        return any(char in _GLOB for part in self.host for char in part)

    @property
    def rank(self) -> tuple[object, ...]:
        """Sort key: a longer path is more specific, and a name more than a glob."""
        return len(self.path), not self.is_glob, self.host

    def fits(self, repository: Repository) -> bool:
        """Whether it matches images of a repository."""
        return (
            self.port == repository.port
            and len(self.host) == len(repository.host)
            and repository.path[: len(self.path)] == self.path
            and all(map(_part_fits, repository.host, self.host))
        )


def _part_fits(part: str, glob: str) -> bool:
    if part == glob:
        return True
    if _GLOB.isdisjoint(glob) or ":" in glob:  # a colon: an IPv6 address in brackets
        return False
    # classes are negated by ^ as in Go, while ! is a character like any other
    return fnmatch.fnmatchcase(part, glob.replace("[!", "[\\!").replace("[^", "[!"))


def _split_port(host_port: str) -> tuple[str, str]:
    host, colon, port = host_port.rpartition(":")
    if colon and port.isdigit():
        return host, port
    return host_port, ""
