"""The keyring: which credentials match an image, most specific registry first, and whose they are.

Pure.

A key names a registry host, optionally with port and path; each dot-separated part of the host may
be a glob (docs/reference/behaviour.md, g3; kubernetes.io "Images", interpretation of config.json).
Must never do I/O, and never show what it holds.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kubeletpy.base.structs import Struct
from kubeletpy.images.registry_pattern import RegistryPattern, Repository

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
        given = {name: value for name, value in named if value}
        text = json.dumps(given, ensure_ascii=False, separators=(",", ":")).translate(_ESCAPES)
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
