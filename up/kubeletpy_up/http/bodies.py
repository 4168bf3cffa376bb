"""Bodies of requests and answers: reading JSON, YAML or protobuf, and the negotiated form. Pure.

Requests are bounded and never trusted. Objects are answered as JSON or protobuf; Tables, or only
their metadata, as JSON.
"""

from __future__ import annotations

from typing import Any, Literal

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct
from kubeletpy.base.wire.api_objects import MEDIA_TYPE
from kubeletpy_up.errors import (
    bad_request,
    not_acceptable,
    too_large,
    unsupported_media_type,
    wrong_form,
)
from kubeletpy_up.printers import tables
from kubeletpy_up.printers.tables import IncludeObject
from kubeletpy_up.resources import ResourceInfo
from kubeletpy_up.schema import definitions
from kubeletpy_up.schema.decode import parse_json
from kubeletpy_up.schema.formats import LARGE, MAX_VALUES, check_count, check_values
from kubeletpy_up.schema.sliced_json import count_values

YAML_LIMIT = 256 << 10
"""Most bytes of a YAML body, which takes ten thousand times as long to read as JSON."""
YAML_DEPTH = 200
_ROUGH = 1000
"""Allowed error of the count before parsing; the count after it is exact."""
_YAML = frozenset({"application/yaml", "application/apply-patch+yaml"})
_READABLE = ("application/json", "application/yaml", definitions.MEDIA_TYPE)
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
    if media == definitions.MEDIA_TYPE:
        return definitions.decode(body)
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


# Content negotiation.

OFFERED = ("application/json",)
_PLAIN = frozenset({"application/json", "application/*", "*/*"})
_TABLE_VERSIONS = frozenset({"v1", "v1beta1"})
_MAX_ALTERNATIVES = 64


class Form(Struct, frozen=True):
    """How to answer.

    Attributes:
        kind: ``object``, ``table``, ``partial`` or ``discovery`` (aggregated).
        version: of the meta.k8s.io or apidiscovery.k8s.io group.
        many: for ``partial``: a list is requested.
        protobuf: for ``object``: not in JSON.
    """

    kind: Literal["object", "table", "partial", "discovery"] = "object"
    version: str = "v1"
    many: bool = False
    protobuf: bool = False


def alternatives(accept: str) -> list[tuple[str, dict[str, str]]]:
    """The media types of an Accept header with their parameters, in the order given."""
    found: list[tuple[str, dict[str, str]]] = []
    for part in accept.split(",")[:_MAX_ALTERNATIVES]:
        media, *parameters = (piece.strip() for piece in part.split(";"))
        pairs = (parameter.partition("=") for parameter in parameters)
        found.append((media.lower(), {key.lower(): value for key, _, value in pairs}))
    return found


def negotiate(accept: str, *, protobuf: bool = False) -> Form:
    """The first acceptable form that we support; ``protobuf``: whether it can be that, too.

    Raises:
        ApiError: 406.
    """
    if not accept.strip():
        return Form()
    for media, parameters in alternatives(accept):
        if media == MEDIA_TYPE and protobuf and "as" not in parameters:
            return Form(protobuf=True)
        if media not in _PLAIN:
            continue
        desired, group = parameters.get("as"), parameters.get("g")
        version = parameters.get("v", "v1")
        if desired is None:
            return Form()
        if group == "apidiscovery.k8s.io" and desired == "APIGroupDiscoveryList":
            if version in ("v2", "v2beta1"):
                return Form("discovery", version)
        elif group == "meta.k8s.io" and version in _TABLE_VERSIONS:
            if desired == "Table":
                return Form("table", version)
            if desired in ("PartialObjectMetadata", "PartialObjectMetadataList"):
                return Form("partial", version, many=desired.endswith("List"))
    raise not_acceptable(OFFERED)


def read_include_object(form: Form, text: str) -> IncludeObject:
    """The includeObject parameter, which only Tables have.

    Raises:
        ApiError: 400, another value.
    """
    if form.kind != "table":
        return "Metadata"
    known: dict[str, IncludeObject] = {"": "Metadata"}
    known |= {"Metadata": "Metadata", "Object": "Object", "None": "None"}
    if text not in known:
        raise bad_request(
            f'Unable to convert to Table as requested: includeObject: Invalid value: "{text[:40]}"'
            ": must be 'Metadata', 'Object', 'None', or empty"
        )
    return known[text]


def _check_one_or_many(form: Form, kind: str, *, is_list: bool) -> None:
    """Refuse a list in the form of one object, and vice versa. Raises ApiError 406."""
    if is_list and not form.many:
        found = f"a list (*core.{kind}List)"
        raise wrong_form(
            f"you requested PartialObjectMetadata, but the requested object is {found}"
        )
    if form.many and not is_list:
        found = f"not a list (*core.{kind})"
        raise wrong_form(
            f"you requested PartialObjectMetadataList, but the requested object is {found}"
        )


def shape(
    form: Form,
    info: ResourceInfo,
    answer: JSON,
    *,
    now: float,
    include_object: IncludeObject = "Metadata",
    with_columns: bool = True,
) -> JSON:
    """An object or list in the requested form; a Status is left unchanged."""
    if form.kind == "object" or answer.get("kind") == "Status":
        return answer
    is_list = answer.get("kind") == info.kind + "List"
    if form.kind == "table":
        items = answer["items"] if is_list else [answer]
        metadata: JSON = answer.get("metadata") or {}
        if not is_list:
            metadata = {"resourceVersion": metadata.get("resourceVersion", "")}
        else:
            versions = {"kind": info.kind, "apiVersion": info.group_version}
            items = [{**versions, **item} for item in items]
        return tables.to_table(
            info,
            items,
            metadata,
            now,
            include_object,
            is_list=is_list,
            with_columns=with_columns,
            version=form.version,
        )
    if form.kind != "partial":
        return answer
    _check_one_or_many(form, info.kind, is_list=is_list)
    if not is_list:
        return tables.partial(answer, form.version)
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": f"meta.k8s.io/{form.version}",
        "metadata": answer.get("metadata") or {},
        "items": [tables.partial(item, form.version) for item in answer["items"]],
    }
