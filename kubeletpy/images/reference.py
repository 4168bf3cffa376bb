"""Image names: their syntax, their full form, and their default tag. Pure.

The grammar is that of container image references (distribution/reference), which every runtime
follows. Input comes from pod specs and is hostile: length is bounded before any matching. Must
never do I/O or decide whether to pull.
"""

from __future__ import annotations

import re

from kubeletpy.base.structs import Struct
from kubeletpy.base.text import shown_image

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
        raise InvalidReference(f'couldn\'t parse image name "{_shown(image)}": {error}') from error
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


def _shown(image: object) -> str:
    text = shown_image(str(image))
    return text if len(text) <= MAX_NAME else text[:MAX_NAME] + "…"
