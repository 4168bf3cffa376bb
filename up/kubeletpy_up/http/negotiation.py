"""Content negotiation: the Accept header, and answers in the form that the client requests.

Pure. Objects are written as JSON or protobuf; Tables, or only their metadata, as JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kubeletpy.base.api.types import JSON
from kubeletpy.base.wire.api_objects import MEDIA_TYPE
from kubeletpy_up.errors import bad_request, not_acceptable, wrong_form
from kubeletpy_up.printers import tables
from kubeletpy_up.printers.tables import IncludeObject
from kubeletpy_up.resources import ResourceInfo

OFFERED = ("application/json",)
_PLAIN = frozenset({"application/json", "application/*", "*/*"})
_TABLE_VERSIONS = frozenset({"v1", "v1beta1"})
_MAX_ALTERNATIVES = 64


@dataclass(frozen=True, slots=True)
class Form:
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
        wanted, group = parameters.get("as"), parameters.get("g")
        version = parameters.get("v", "v1")
        if wanted is None:
            return Form()
        if group == "apidiscovery.k8s.io" and wanted == "APIGroupDiscoveryList":
            if version in ("v2", "v2beta1"):
                return Form("discovery", version)
        elif group == "meta.k8s.io" and version in _TABLE_VERSIONS:
            if wanted == "Table":
                return Form("table", version)
            if wanted in ("PartialObjectMetadata", "PartialObjectMetadataList"):
                return Form("partial", version, many=wanted.endswith("List"))
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
