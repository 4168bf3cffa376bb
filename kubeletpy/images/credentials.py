"""The keyring: which credentials fit an image, most specific registry first.

A key names a registry host, optionally with port and path; each dot-separated part of the host may
be a glob (docs/reference, pull; kubernetes.io "Images", interpretation of config.json). Must never
do I/O, and never show what it holds.
"""

from __future__ import annotations

import base64
import binascii
import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

MAX_KEYS = 2_000
"""Registries looked at per keyring; more is no honest secret."""


@dataclass(frozen=True, slots=True)
class Credential:
    """One way to log in to a registry."""

    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Strings that must never be shown."""
        return tuple(text for text in (self.password, self.identity_token) if text)


@dataclass(frozen=True, slots=True)
class _Key:
    host: tuple[str, ...]
    port: str
    path: str
    text: str


class Keyring:
    """Credentials of one kind of origin (a pod's secrets, or the node's files)."""

    def __init__(self, configs: Iterable[Mapping[str, object]]) -> None:
        """Index "auths" documents. Entries that are no credentials are left out."""
        entries: list[tuple[_Key, Credential]] = []
        for config in configs:
            auths = config.get("auths")
            for registry, entry in (auths if isinstance(auths, Mapping) else config).items():
                key = _parse_key(registry)
                credential = _parse_entry(entry)
                if key is not None and credential is not None and len(entries) < MAX_KEYS:
                    entries.append((key, credential))
        # Reverse order of text puts the longer of two paths on one host first.
        self._entries = sorted(entries, key=lambda item: item[0].text, reverse=True)

    def lookup(self, repository: str) -> list[Credential]:
        """Credentials for a full repository name (``docker.io/library/busybox``), best first."""
        host_port, _, path = repository.partition("/")
        host, port = _split_port(host_port)
        parts = tuple(host.split("."))
        found = [
            credential
            for key, credential in self._entries
            if _matches(key, parts, port, f"/{path}")
        ]
        if not found and host_port == "docker.io":
            found = [
                credential
                for key, credential in self._entries
                if key.host == ("index", "docker", "io") and not key.port
            ]
        return found


def find_credentials(keyrings: Iterable[Keyring], repository: str) -> list[Credential]:
    """All that fit, keyring after keyring, each only once."""
    found: dict[Credential, None] = {}
    for keyring in keyrings:
        found.update(dict.fromkeys(keyring.lookup(repository)))
    return list(found)


def _matches(key: _Key, host: tuple[str, ...], port: str, path: str) -> bool:
    return (
        key.port == port
        and len(key.host) == len(host)
        and path.startswith(key.path)
        and all(fnmatch.fnmatchcase(part, glob) for part, glob in zip(host, key.host, strict=True))
    )


def _parse_key(registry: object) -> _Key | None:
    if not isinstance(registry, str) or not registry or len(registry) > 2048:
        return None
    location = registry.removeprefix("https://").removeprefix("http://")
    location = location.split("?", 1)[0].split("#", 1)[0]
    host_port, _, path = location.partition("/")
    path = f"/{path}".rstrip("/")
    for version in ("/v1", "/v2"):
        # Docker's own keys end in the API version; it is no part of a repository name.
        if path == version or path.startswith(f"{version}/"):
            path = path[len(version) :]
    host, port = _split_port(host_port.rsplit("@", 1)[-1])
    if not host:
        return None
    return _Key(tuple(host.split(".")), port, path, f"{host_port}{path}")


def _split_port(host_port: str) -> tuple[str, str]:
    host, colon, port = host_port.rpartition(":")
    if colon and port.isdigit():
        return host, port
    return host_port, ""


def _parse_entry(entry: object) -> Credential | None:
    if not isinstance(entry, Mapping):
        return None
    username, password, token = (
        value if isinstance(value := entry.get(name), str) else ""
        for name in ("username", "password", "identitytoken")
    )
    auth = entry.get("auth")
    if isinstance(auth, str) and auth:
        try:
            decoded = base64.b64decode(auth + "=" * (-len(auth) % 4), validate=True)
            username, colon, password = decoded.decode("utf-8").partition(":")
        except (binascii.Error, ValueError):
            return None
        if not colon:
            return None
    if not (username or password or token):
        return None
    return Credential(username, password, token)
