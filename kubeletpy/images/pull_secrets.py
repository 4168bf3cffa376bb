"""Reads registry credentials from API Secrets: the two formats of image pull secrets. Pure.

Must never log or show their content.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Protocol

DOCKER_CONFIG_JSON_TYPE = "kubernetes.io/dockerconfigjson"
DOCKER_CONFIG_JSON_KEY = ".dockerconfigjson"
DOCKERCFG_TYPE = "kubernetes.io/dockercfg"
DOCKERCFG_KEY = ".dockercfg"
MAX_DOCUMENT = 1 << 20
"""Longest decoded document, in bytes: the API's own limit for a Secret."""


class MalformedPullSecret(ValueError):
    """A secret without registry credentials; the message never quotes its content."""


class PullSecretLike(Protocol):
    """A pull secret as the image manager reads it: the runtime manager's PullSecret is one."""

    @property
    def namespace(self) -> str:
        """Namespace of the Secret."""
        ...

    @property
    def name(self) -> str:
        """Name of the Secret."""
        ...

    @property
    def uid(self) -> str:
        """Uid of the Secret."""
        ...

    @property
    def docker_config(self) -> Mapping[str, object]:
        """Registry -> credentials, or the whole document with its "auths"."""
        ...


def decode_pull_secret(secret: Mapping[str, Any]) -> Mapping[str, object]:
    """The "auths" of a Secret object: registry -> credentials.

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
