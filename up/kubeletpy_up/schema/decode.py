"""From a client's JSON to an object of a known type: types checked, unknown fields found.

The result has only fields of the schema, canonical quantities and UTC times; zeros and nulls
are where the API writes them. Definitions are compiled to closures the first time a kind is seen.
Must never change its input, and never apply defaults or interpret values.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kubeletpy_up.errors import bad_request
from kubeletpy_up.schema import compile as schema_compile
from kubeletpy_up.schema import definitions

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.resources import ResourceInfo

_MAX_WARNINGS = 20
_RECURSION = "json: nested too deep"


class DuplicatedKeys(dict[str, Any]):
    """A JSON object in which some keys came more than once (the last value counts)."""

    duplicates: tuple[str, ...] = ()


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    if len(plain) == len(pairs):
        return plain
    seen: set[str] = set()
    repeated: list[str] = []
    for key, _ in pairs:
        if key in seen:
            repeated.append(key)
        seen.add(key)
    marked = DuplicatedKeys(plain)
    marked.duplicates = tuple(repeated)
    return marked


def _no_constant(name: str) -> Any:
    raise ValueError(f"invalid character {name[:1]!r} looking for beginning of value")


def parse_json(body: bytes | str) -> Any:
    """Read JSON, remembering repeated keys for :func:`decode` to report.

    Raises:
        ApiError: 400, not JSON.
    """
    try:
        return json.loads(body, object_pairs_hook=_pairs, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        message = _RECURSION if isinstance(error, RecursionError) else str(error)
        raise bad_request(f"error decoding the body: {message}") from None


def decode(
    resource: ResourceInfo, obj: Any, field_validation: str = "Warn", *, whole: bool = True
) -> tuple[JSON, list[str]]:
    """Check an object that a client sent against its kind's definition.

    Args:
        resource: what the request's path names.
        obj: parsed JSON; repeated keys are known only if :func:`parse_json` read it.
        field_validation: "Strict" refuses unknown and repeated fields, "Warn" drops them with a
            warning, "Ignore" drops them.
        whole: fill in what the API always writes (see :mod:`.compile`); not for an applied
            configuration, which holds only its manager's fields.

    Returns:
        The cleaned object, always with apiVersion and kind, and warnings for the client.

    Raises:
        ApiError: 400 BadRequest.
    """
    group, version = resource.group, resource.version
    return decode_kind(group, version, resource.kind, obj, field_validation, whole=whole)


def decode_kind(
    group: str,
    version: str,
    kind: str,
    obj: Any,
    field_validation: str = "Warn",
    *,
    whole: bool = True,
) -> tuple[JSON, list[str]]:
    """Like :func:`decode`, for a body whose kind isn't the resource's (Binding, TokenRequest).

    A kind without a definition passes unchanged.
    """
    api_version = f"{group}/{version}" if group else version
    if not isinstance(obj, dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {kind})")
    supplied_kind, supplied_version = obj.get("kind") or kind, obj.get("apiVersion") or api_version
    if (supplied_kind, supplied_version) != (kind, api_version):
        raise bad_request(
            f'{supplied_kind} in version "{str(supplied_version).rpartition("/")[2]}" '
            f"cannot be handled as a {kind}: converting ({supplied_version}.{supplied_kind}) to "
            f"({group.partition('.')[0] or 'core'}.{kind}): "
            "unknown conversion"
        )
    name = definitions.definition_name(group, version, kind)
    if name is None:
        return dict(obj), []
    prefix = f'{kind} in version "{version}" cannot be handled as a {kind}: '
    found = schema_compile.Found(whole=whole)
    try:
        cleaned = schema_compile.decoder(name)(obj, found)
    except schema_compile.Mismatch as mismatch:
        raise bad_request(prefix + mismatch.message()) from None
    except RecursionError:
        raise bad_request(prefix + _RECURSION) from None
    cleaned["apiVersion"] = api_version
    cleaned["kind"] = kind
    if not found.odd or field_validation == "Ignore":
        return cleaned, []
    oddities = odd_fields(name, obj)
    if field_validation == "Strict":
        raise bad_request(prefix + "strict decoding error: " + ", ".join(oddities))
    return cleaned, oddities[:_MAX_WARNINGS]


def odd_fields(name: str, obj: JSON) -> list[str]:
    """A strict decoder's complaints: the path of each unknown and each repeated field."""
    unknown: list[str] = []
    repeated: list[str] = []
    _walk({"$ref": f"#/definitions/{name}"}, obj, "", unknown, repeated)
    return [f'duplicate field "{path}"' for path in repeated] + [
        f'unknown field "{path}"' for path in unknown
    ]


def _walk(schema: JSON, value: Any, path: str, unknown: list[str], repeated: list[str]) -> None:
    definition = definitions.resolve(schema)
    if isinstance(value, DuplicatedKeys):
        repeated.extend(f"{path}.{key}".lstrip(".") for key in value.duplicates)
    if isinstance(value, list):
        for index, item in enumerate(value):
            _walk(definition.get("items", {}), item, f"{path}[{index}]", unknown, repeated)
    elif isinstance(value, dict):
        properties = definition.get("properties")
        extra = definition.get("additionalProperties", {})
        for key, item in value.items():
            where = f"{path}.{key}" if path else key
            if properties is not None and key not in properties:
                unknown.append(where)
            else:
                _walk(properties[key] if properties else extra, item, where, unknown, repeated)
