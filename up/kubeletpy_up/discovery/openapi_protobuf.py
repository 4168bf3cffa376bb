"""An OpenAPI v2 document in protobuf's wire format.

kubectl up to 1.23 accepts nothing else. The messages' fields come from the table in
``data/openapi-v2-document.json``.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from kubeletpy.base.wire.api_messages import MessageField, message_classes
from kubeletpy_up.data import load_json

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON

_PACKAGE = "openapi.v2"
_UNUSED = "google.protobuf.Any"
"""A type of another file. Messages with such a field have an alternative field, which we write."""
_PARAMETER = ("required", "in", "name", "type")


@cache
def _classes() -> dict[str, Any]:
    loaded = load_json("openapi-v2-document.json")
    messages = {
        message["name"]: [
            MessageField(
                each["number"],
                each["name"],
                each["type"].removeprefix(f"{_PACKAGE}."),
                each.get("repeated", False),
            )
            for each in message["fields"]
            if each["type"] != _UNUSED
        ]
        for message in loaded["messages"]
    }
    return message_classes(_PACKAGE, messages)


def encode_document(document: JSON) -> bytes:
    """``openapi.v2.Document`` of an OpenAPI v2 document in its JSON form."""
    made: bytes = (
        _classes()["Document"](
            swagger=document["swagger"],
            info=document["info"],
            paths={"path": [_named(k, _path_item(v)) for k, v in document["paths"].items()]},
            definitions=_map(document["definitions"]),
        )
    ).SerializeToString()
    return made


def _named(name: str, value: JSON) -> JSON:
    return {"name": name, "value": value}


def _map(schemas: JSON) -> JSON:
    found = [_named(name, _schema(schema)) for name, schema in schemas.items()]
    return {"additional_properties": found}


def _any(value: Any) -> JSON:
    return {"yaml": json.dumps(value, separators=(",", ":")) + "\n"}


def _extensions(given: JSON) -> list[JSON]:
    return [_named(key, _any(value)) for key, value in given.items() if key.startswith("x-")]


def _schema(given: JSON) -> JSON:
    found: JSON = {"vendor_extension": _extensions(given)}
    for key, name in (("$ref", "_ref"), ("format", "format"), ("required", "required")):
        if key in given:
            found[name] = given[key]
    if "enum" in given:
        found["enum"] = [_any(value) for value in given["enum"]]
    if "type" in given:
        found["type"] = {"value": [given["type"]]}
    if "items" in given:
        found["items"] = {"schema": [_schema(given["items"])]}
    if "properties" in given:
        found["properties"] = _map(given["properties"])
    if "additionalProperties" in given:
        found["additional_properties"] = {"schema": _schema(given["additionalProperties"])}
    return found


def _parameter(given: JSON) -> JSON:
    if given["in"] == "body":
        body = {key: given[key] for key in ("name", "in", "required")}
        return {"parameter": {"body_parameter": {**body, "schema": _schema(given["schema"])}}}
    plain: JSON = {"unique_items": True}
    plain.update((key, value) for key, value in given.items() if key in _PARAMETER)
    kind = f"{given['in']}_parameter_sub_schema"
    return {"parameter": {"non_body_parameter": {kind: plain}}}


def _operation(given: JSON) -> JSON:
    responses = [
        _named(
            code,
            {
                "response": {
                    "description": response["description"],
                    "schema": {"schema": _schema(response["schema"])},
                }
            },
        )
        for code, response in given["responses"].items()
    ]
    return {
        "consumes": given["consumes"],
        "produces": given["produces"],
        "parameters": [_parameter(parameter) for parameter in given["parameters"]],
        "responses": {"response_code": responses},
        "vendor_extension": _extensions(given),
    }


def _path_item(given: JSON) -> JSON:
    return {
        key: [_parameter(one) for one in value] if key == "parameters" else _operation(value)
        for key, value in given.items()
    }
