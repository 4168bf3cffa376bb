"""Image names: their syntax, full form and default tag, and the registry patterns they match. Pure.

The grammar is that of container image references (distribution/reference), which every runtime
follows. Input comes from pod specs and is hostile: length is bounded before any matching. Must
never do I/O or decide whether to pull.
"""

from __future__ import annotations

import fnmatch
import re

from kubeletpy.base.structs import Struct, replace
from kubeletpy.base.text import reported_image
from kubeletpy.remote.generated import api_pb2 as cri

DEFAULT_TAG = "latest"
DEFAULT_DOMAIN = "docker.io"
MAX_REFERENCE = 1024
"""Longest text parsed, in characters; name, tag and digest together never need more."""
MAX_NAME = 255

_DOMAIN_PART = r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)"
_DOMAIN = re.compile(rf"(?:{_DOMAIN_PART}(?:\.{_DOMAIN_PART})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?")
_PATH = re.compile(
    r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*"
)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}")
_IDENTIFIER = re.compile(r"[a-f0-9]{64}")
_DIGEST_LENGTHS = {"sha256": 64, "sha384": 96, "sha512": 128}


class InvalidReference(ValueError):
    """Not an image reference; the message uses the runtimes' words."""


class Reference(Struct, frozen=True):
    """A parsed and fully qualified image name."""

    domain: str
    """Registry host with port: ``docker.io`` when the name has none."""
    path: str
    """Repository within the registry; ``library/`` is added to short Docker Hub names."""
    tag: str = ""
    digest: str = ""

    @property
    def repository(self) -> str:
        """Name without tag and digest: what credentials are looked up by."""
        return f"{self.domain}/{self.path}"


def parse_reference(image: str) -> Reference:
    """Parse an image name.

    Raises:
        InvalidReference: not an image name (wrong characters, upper case, bad digest, too long).
    """
    if not isinstance(image, str) or len(image) > MAX_REFERENCE:
        raise InvalidReference("invalid reference format")
    if _IDENTIFIER.fullmatch(image):
        raise InvalidReference(
            f"invalid repository name ({image}), cannot specify 64-byte hexadecimal strings"
        )
    rest, at, digest = image.partition("@")
    if at:
        _check_digest(digest)
    name, tag = _split_tag(rest)
    if tag is not None and not _TAG.fullmatch(tag):
        raise InvalidReference("invalid reference format")
    domain, path = _split_domain(name)
    if path != path.lower() and _PATH.fullmatch(path.lower()):
        raise InvalidReference(
            f"invalid reference format: repository name ({path}) must be lowercase"
        )
    if not _DOMAIN.fullmatch(domain) or not _PATH.fullmatch(path):
        raise InvalidReference("invalid reference format")
    if len(domain) + 1 + len(path) > MAX_NAME:
        raise InvalidReference(f"repository name must not be more than {MAX_NAME} characters")
    return Reference(domain, path, tag or "", digest)


def with_default_tag(image: str) -> str:
    """The image name as given, with ``:latest`` when it has neither tag nor digest.

    Raises:
        InvalidReference: see parse_reference; the message names the image.
    """
    try:
        reference = parse_reference(image)
    except InvalidReference as error:
        raise InvalidReference(
            f'couldn\'t parse image name "{_reported(image)}": {error}'
        ) from error
    return image if reference.tag or reference.digest else f"{image}:{DEFAULT_TAG}"


def default_pull_policy(image: str) -> str:
    """The default pull policy of a container: Always for ``:latest``, else IfNotPresent.

    Source: core/v1 defaulting. If it is not an image name: IfNotPresent; the pull will fail with
    the reason.
    """
    try:
        reference = parse_reference(image)
    except InvalidReference:
        return "IfNotPresent"
    if reference.digest:
        return "Always" if reference.tag == DEFAULT_TAG else "IfNotPresent"
    return "Always" if reference.tag in ("", DEFAULT_TAG) else "IfNotPresent"


def _split_tag(rest: str) -> tuple[str, str | None]:
    slash = rest.rfind("/")
    colon = rest.rfind(":")
    if colon <= slash:
        return rest, None
    return rest[:colon], rest[colon + 1 :]


def _split_domain(name: str) -> tuple[str, str]:
    first, slash, rest = name.partition("/")
    is_domain = slash and (
        "." in first or ":" in first or first == "localhost" or first != first.lower()
    )
    domain, path = (first, rest) if is_domain else (DEFAULT_DOMAIN, name)
    if domain == "index.docker.io":
        domain = DEFAULT_DOMAIN
    if domain == DEFAULT_DOMAIN and "/" not in path:
        path = f"library/{path}"
    return domain, path


def _check_digest(digest: str) -> None:
    if not _DIGEST.fullmatch(digest):
        raise InvalidReference("invalid reference format")
    algorithm, _, value = digest.partition(":")
    length = _DIGEST_LENGTHS.get(algorithm)
    if length is None:
        raise InvalidReference("unsupported digest algorithm")
    if len(value) != length:
        raise InvalidReference("invalid checksum digest length")
    if value != value.lower():
        raise InvalidReference("invalid checksum digest format")


def _reported(image: object) -> str:
    text = reported_image(str(image))
    return text if len(text) <= MAX_NAME else text[:MAX_NAME] + "…"


# Registry patterns, and the images that they match

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
    """A parsed pattern of registries: ``host[:port][/path]``, with globs in parts of the host.

    It matches when the ports are equal and the image's path begins with the components of the
    pattern's path. The hosts must have the same number of dot-separated parts, and each part must
    match its glob, in upper or lower case. Source: kubernetes.io, "Images", interpretation of
    config.json; CredentialProvider.matchImages.
    """

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


class LocalImage(Struct, frozen=True):
    """An image on the node, as containers are created from it."""

    ref: str
    """Its name in CreateContainer: the runtime's image id."""
    uid: int | None = None
    """Numeric user of the image, when it has one."""
    username: str = ""
    """Named user of the image, when the user is not a number."""


def local_image(answer: cri.ImageStatusResponse) -> LocalImage | None:
    """The image in an ImageStatus answer; None when it is not on the node."""
    if not answer.image.id:
        return None
    image = answer.image
    uid = image.uid.value if image.HasField("uid") else None
    return LocalImage(image.id, uid, image.username)
