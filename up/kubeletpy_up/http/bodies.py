"""Request bodies: JSON, YAML or protobuf, bounded, never trusted. Pure."""

from __future__ import annotations

from typing import Any

from kubeletpy_up.errors import bad_request, too_large, unsupported_media_type
from kubeletpy_up.schema import protobuf
from kubeletpy_up.schema.bounds import LARGE, MAX_VALUES, check_count, check_values
from kubeletpy_up.schema.decode import parse_json
from kubeletpy_up.schema.sliced_json import count_values

YAML_LIMIT = 256 << 10
"""Most bytes of a YAML body, which takes ten thousand times as long to read as JSON."""
YAML_DEPTH = 200
_ROUGH = 1000
"""Allowed error of the count before parsing; the count after it is exact."""
_YAML = frozenset({"application/yaml", "application/apply-patch+yaml"})
_READABLE = ("application/json", "application/yaml", protobuf.MEDIA_TYPE)
_JSON = frozenset({"", "application/json", "application/octet-stream"})


def media_type(content_type: str) -> str:
    """A Content-Type header without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def is_slow(body: bytes, content_type: str) -> bool:
    """Whether a body is so slow to read that a thread has to: large, or YAML."""
    return len(body) > LARGE or (media_type(content_type) in _YAML and not _is_json(body))


def decode(body: bytes, content_type: str, is_patch: bool = False) -> Any:
    """The object or patch that a client sent; None for an empty body or an unknown patch type.

    Raises:
        ApiError: 400, 413, 415.
    """
    media = media_type(content_type)
    if len(body) > MAX_VALUES // 4 and _is_json(body):
        check_count(count_values(body, MAX_VALUES + _ROUGH) - _ROUGH)
    if is_patch and media not in _YAML:
        sent = parse_json(body) if media.endswith("+json") else None
    else:
        sent = read(body, content_type)
    if len(body) > MAX_VALUES:
        check_values(sent)
    return sent


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
    """Decode YAML (or JSON, which it contains) into what JSON can express.

    Raises:
        ApiError: 400, not YAML, or with aliases (they can blow up a small body); 413.
    """
    if _is_json(body):
        return parse_json(body)
    if len(body) > YAML_LIMIT:
        raise too_large(YAML_LIMIT)
    import yaml

    try:
        _check_tokens(yaml, body)
        return yaml.load(body, Loader=_loader(yaml))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise bad_request(f"error converting YAML to JSON: {type(error).__name__}") from None


def _is_json(body: bytes) -> bool:
    return body.lstrip()[:1] in (b"{", b"[")


def _check_tokens(yaml: Any, body: bytes) -> None:
    begins = (
        *(yaml.FlowSequenceStartToken, yaml.FlowMappingStartToken),
        *(yaml.BlockSequenceStartToken, yaml.BlockMappingStartToken),
    )
    ends = (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken, yaml.BlockEndToken)
    depth = 0
    for token in yaml.scan(body):
        if isinstance(token, yaml.AliasToken):
            raise bad_request("YAML aliases are not supported")
        depth += isinstance(token, begins) - isinstance(token, ends)
        if depth > YAML_DEPTH:
            raise bad_request("yaml: nested too deep")


def _loader(yaml: Any) -> Any:
    resolvers = {
        first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:timestamp"]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    # JSON has no dates: text that resembles one stays text.
    return type("Loader", (yaml.SafeLoader,), {"yaml_implicit_resolvers": resolvers})
