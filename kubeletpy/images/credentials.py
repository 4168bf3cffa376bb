"""Registry credentials: which ones match an image, best first, and whose they are. Pure.

A key of a :class:`Keyring` names a registry host, optionally with port and path. Each dot-separated
part of the host may be a glob. Image pull secrets have two formats, which are read here too. Must
never log or show a credential. Source: docs/reference/behaviour.md, g3; kubernetes.io "Images",
interpretation of config.json.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubeletpy.base.structs import Struct
from kubeletpy.images.reference import RegistryPattern, Repository

MAX_KEYS = 2_000
"""Maximum registries per keyring; no legitimate secret has more."""
MAX_GLOBS = 100
"""Maximum globs among them: each new one costs up to a millisecond per lookup."""
_ESCAPES = str.maketrans(
    {char: f"\\u{ord(char):04x}" for char in ("<", ">", "&", "\u2028", "\u2029")}
)


class SecretSource(Struct, frozen=True):
    """The Secret that credentials come from."""

    uid: str
    namespace: str
    name: str


class AccountSource(Struct, frozen=True):
    """The ServiceAccount that a credential provider gave credentials to."""

    uid: str
    namespace: str
    name: str


Source = SecretSource | AccountSource | None
"""Owner of the credentials; None: the node, whose credentials every pod on it may use."""
Config = Mapping[str, object]
"""An "auths" document: registry -> credentials."""


@dataclass(frozen=True, slots=True)
class Credential:
    """One login to a registry. Logins are equal regardless of their source."""

    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    source: Source = field(default=None, compare=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Strings that must never be shown."""
        return tuple(text for text in (self.password, self.identity_token) if text)

    @property
    def fingerprint(self) -> str:
        """Hex SHA-256 by which pull records recognize the login, computed as in the kubelet."""
        named = (
            ("username", self.username),
            ("password", self.password),
            ("identitytoken", self.identity_token),
        )
        supplied = {name: value for name, value in named if value}
        text = json.dumps(supplied, ensure_ascii=False, separators=(",", ":")).translate(_ESCAPES)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Keyring:
    """Credentials of one kind of origin (a pod's secrets, the node's files, providers)."""

    def __init__(self, configs: Iterable[tuple[Config, Source]] = ()) -> None:
        """Index documents with their owners. Entries that are not credentials are skipped."""
        entries: list[tuple[RegistryPattern, Credential]] = []
        globs = 0
        for config, source in configs:
            auths = config.get("auths")
            for registry, entry in (auths if isinstance(auths, Mapping) else config).items():
                key = RegistryPattern.of_login(registry)
                credential = _parse_entry(entry, source)
                if key is None or credential is None or len(entries) >= MAX_KEYS:
                    continue
                globs += key.is_glob
                if not key.is_glob or globs <= MAX_GLOBS:
                    entries.append((key, credential))
        self._entries = sorted(entries, key=lambda item: item[0].rank, reverse=True)

    def lookup(self, repository: str) -> list[Credential]:
        """Credentials for a full repository name (``docker.io/library/busybox``), best first."""
        parsed = Repository.parse(repository)
        return [credential for key, credential in self._entries if key.fits(parsed)]


def find_credentials(keyrings: Iterable[Keyring], repository: str) -> list[Credential]:
    """All matches, keyring by keyring; the same login may come from several sources."""
    return [credential for keyring in keyrings for credential in keyring.lookup(repository)]


def distinct(credentials: Iterable[Credential]) -> Sequence[Credential]:
    """Each login once, with its first source."""
    return tuple(dict.fromkeys(credentials))


def _parse_entry(entry: object, source: Source) -> Credential | None:
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
        except ValueError:
            return None
        if not colon:
            return None
    if not (username or password or token):
        return None
    try:
        # JSON can hold lone surrogates, which no message to the runtime can
        (username + password + token).encode()
    except UnicodeEncodeError:
        return None
    return Credential(username, password, token, source)


# Image pull secrets

DOCKER_CONFIG_JSON_TYPE = "kubernetes.io/dockerconfigjson"
DOCKER_CONFIG_JSON_KEY = ".dockerconfigjson"
DOCKERCFG_TYPE = "kubernetes.io/dockercfg"
DOCKERCFG_KEY = ".dockercfg"
MAX_DOCUMENT = 1 << 20
"""Longest decoded document, in bytes: the API's own limit for a Secret."""


class MalformedPullSecret(ValueError):
    """A secret without registry credentials; the message never quotes its content."""


def decode_pull_secret(secret: Mapping[str, Any]) -> Mapping[str, object]:
    """Return the "auths" of a Secret object: registry -> credentials.

    Raises:
        MalformedPullSecret: wrong type of secret, a missing key, or not a JSON object.
    """
    data = secret.get("data") or {}
    if secret.get("type") == DOCKERCFG_TYPE:
        return _auths(_document(data, DOCKERCFG_KEY), DOCKERCFG_KEY)
    if secret.get("type") == DOCKER_CONFIG_JSON_TYPE:
        document = _document(data, DOCKER_CONFIG_JSON_KEY)
        return _auths(document.get("auths") or {}, DOCKER_CONFIG_JSON_KEY)
    raise MalformedPullSecret(
        f"type is {secret.get('type')!r}, not {DOCKER_CONFIG_JSON_TYPE} or {DOCKERCFG_TYPE}"
    )


def parse_docker_config(text: str | bytes) -> Mapping[str, object]:
    """The "auths" of a docker config file, or a whole legacy ``.dockercfg``.

    Raises:
        MalformedPullSecret: not a JSON object.
    """
    document = _parse(text, "docker config")
    return _auths(document.get("auths", document), "docker config")


def _document(data: object, key: str) -> Mapping[str, Any]:
    encoded = data.get(key) if isinstance(data, Mapping) else None
    if not isinstance(encoded, str):
        raise MalformedPullSecret(f"data has no {key}")
    try:
        text = base64.b64decode(encoded, validate=True)
    except ValueError:
        raise MalformedPullSecret(f"{key} is not base64") from None
    return _parse(text, key)


def _parse(text: str | bytes, what: str) -> Mapping[str, Any]:
    if len(text) > MAX_DOCUMENT:
        raise MalformedPullSecret(f"{what} is longer than {MAX_DOCUMENT} bytes")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        # The decoder's own message and context quote the document, which holds passwords.
        raise MalformedPullSecret(f"{what} is not JSON") from None
    if not isinstance(document, Mapping):
        raise MalformedPullSecret(f"{what} is not a JSON object")
    return document


def _auths(auths: object, what: str) -> Mapping[str, object]:
    if not isinstance(auths, Mapping):
        raise MalformedPullSecret(f"{what}: auths is not a JSON object")
    return auths
