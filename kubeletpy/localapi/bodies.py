"""Request bodies: JSON, YAML or protobuf, bounded, never trusted."""

from __future__ import annotations

from typing import Any

from kubeletpy.localapi import protobuf
from kubeletpy.localapi.errors import bad_request, unsupported_media_type
from kubeletpy.localapi.schema import parse_json

BODY_LIMIT = 3 << 20
_YAML = frozenset({"application/yaml", "application/apply-patch+yaml"})
_READABLE = ("application/json", "application/yaml", protobuf.MEDIA_TYPE)
_JSON = frozenset({"", "application/json", "application/octet-stream"})


def media_type(content_type: str) -> str:
    """A Content-Type header without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def read(body: bytes, content_type: str) -> Any:
    """Decode an object sent to create or replace one; None for an empty body.

    Raises:
        ApiError: 400, 415.
    """
    media = media_type(content_type)
    if not body:
        return None
    if media in _YAML:
        return read_yaml(body)
    if media == protobuf.MEDIA_TYPE:
        return protobuf.decode(body)
    if media not in _JSON:
        raise unsupported_media_type(media, _READABLE)
    return parse_json(body)


def read_yaml(body: bytes) -> Any:
    """Decode YAML (or JSON, which it contains) into what JSON can say.

    Raises:
        ApiError: 400, no YAML, or with aliases (they can blow up a small body).
    """
    if body.lstrip()[:1] in (b"{", b"["):
        return parse_json(body)
    import yaml

    try:
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(body)):
            raise bad_request("YAML aliases are not supported")
        return yaml.load(body, Loader=_loader(yaml))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise bad_request(f"error converting YAML to JSON: {type(error).__name__}") from None


def _loader(yaml: Any) -> Any:
    resolvers = {
        first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:timestamp"]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    # JSON has no dates: what looks like one stays text.
    return type("Loader", (yaml.SafeLoader,), {"yaml_implicit_resolvers": resolvers})
