"""Definitions compiled to closures: one call checks and cleans one value.

Each decoder takes a value and a :class:`Found` to mark, and returns the cleaned copy. A value
that its type can't hold raises :class:`Mismatch`, whose path grows as the exception unwinds, so
that the good case pays nothing for it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any

from kubeletpy.base.structs import Struct
from kubeletpy_up.data import load_json
from kubeletpy_up.schema import definitions, formats

# Fields that the API always writes, and those that it leaves out when they are empty.
#
# An empty plain string, number or boolean is left out, unless the table has it as always written.
# A pointer is written as supplied, even if it points to a zero value. A nested object that is no
# pointer is always written, if need be as ``{}``; an unset time is ``null``. Source:
# docs/reference/api-wire.json (``*`` is a pointer, ``!`` what is always written).

_PLAIN: dict[str, Any] = {"string": "", "int": 0, "bool": False}
_TIMES = ("Time", "MicroTime")
_NEVER_NULL = frozenset({"creationTimestamp"})


class ZeroValues(Struct, frozen=True):
    """The rules for one definition's fields.

    Attributes:
        left_out: plain fields that are not written when empty.
        written: field -> what is written when it has no value.
        structs: nested objects that are always written.
    """

    left_out: frozenset[str]
    written: dict[str, Any]
    structs: tuple[str, ...]


@cache
def _table() -> dict[str, dict[str, list[str]]]:
    loaded: dict[str, dict[str, list[str]]] = load_json("api-wire.json")
    return loaded


def _message(definition: str) -> str:
    """The wire table's name of a definition: ``core/Pod`` of ``io.k8s.api.core.v1.Pod``."""
    parts = definition.split(".")
    if definition.startswith("io.k8s.apimachinery.pkg.apis.meta."):
        return f"meta/{parts[-1]}"
    if not definition.startswith("io.k8s.api.") or parts[-2] != "v1":
        return ""
    group = parts[3]
    return f"{group if group in ('core', 'policy') else f'{group}.k8s.io'}/{parts[-1]}"


def of_fields(definition: str) -> ZeroValues:
    """The rules for a definition's fields; empty for one that the table doesn't have."""
    kinds = {key: kind for key, kind in _table().get(_message(definition), {}).values() if key}
    always = {key: _PLAIN[kind[1:]] for key, kind in kinds.items() if kind.startswith("!")}
    nulls = {key: None for key, kind in kinds.items() if kind in _TIMES and key not in _NEVER_NULL}
    return ZeroValues(
        frozenset(key for key, kind in kinds.items() if kind in _PLAIN),
        {**always, **nulls},
        tuple(
            key
            for key, kind in kinds.items()
            if "/" in kind and kind[0].isalpha() and not kind.startswith("map ")
        ),
    )


def json_type(value: Any) -> str:
    """The JSON type of a value: ``bool``, ``string``, ``number``, ``array`` or ``object``."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int | float):
        return "number"
    return "array" if isinstance(value, list) else "object"


_INT_RANGE = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
_MICROSECONDS = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)$")
_SECONDS = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")


class Found:
    """Options of one decoding, and its findings.

    Attributes:
        whole: the value is a whole object, and gets the fields that the API always writes.
        odd: there is an unknown or a repeated field.
    """

    __slots__ = ("odd", "whole")

    def __init__(self, *, whole: bool = True) -> None:
        self.whole = whole
        self.odd = False


class Mismatch(Exception):
    """A value that its type can't hold."""

    def __init__(self, what: str, go_type: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.go_type = go_type
        self.owner = ""
        self.path: list[str] = []

    def message(self) -> str:
        """The message of the API server, which is that of its JSON library."""
        if not self.go_type:
            return self.what
        if not self.path:
            return f"json: cannot unmarshal {self.what} into Go value of type {self.go_type}"
        return (
            f"json: cannot unmarshal {self.what} into Go struct field "
            f"{self.owner}.{'.'.join(reversed(self.path))} of type {self.go_type}"
        )


Decoder = Callable[[Any, Found], Any]


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _go_type(schema: definitions.Definition) -> str:
    name = definitions.reference(schema)
    if name:
        return (
            _short(name)
            if name.startswith("io.k8s.apimachinery.pkg.util")
            else "v1." + _short(name)
        )
    kind = schema.get("type", "object")
    if kind == "array":
        return "[]" + _go_type(schema.get("items", {}))
    if kind == "object":
        return "map[string]" + _go_type(schema.get("additionalProperties", {"type": "string"}))
    return str({"integer": schema.get("format", "int64"), "boolean": "bool"}.get(kind, kind))


def _scalar(python_type: type, go_type: str) -> Decoder:
    def decode(value: Any, found: Found) -> Any:
        if type(value) is not python_type:
            raise Mismatch(json_type(value), go_type)
        return value

    return decode


def _integer(form: str) -> Decoder:
    low, high = _INT_RANGE.get(form, _INT_RANGE["int64"])

    def decode(value: Any, found: Found) -> Any:
        if type(value) is not int:
            reported = f"number {value}" if type(value) is float else json_type(value)
            raise Mismatch(reported, form)
        if not low <= value <= high:
            raise Mismatch(f"number {value}", form)
        return value

    return decode


def _bytes(value: Any, found: Found) -> Any:
    if type(value) is not str:
        raise Mismatch(json_type(value), "[]uint8")
    try:
        base64.b64decode(value.replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError):
        raise Mismatch("illegal base64 data at input byte " + str(_bad_byte(value))) from None
    return value.replace("\n", "").replace("\r", "")


def _bad_byte(value: str) -> int:
    for index, char in enumerate(value):
        if not (char.isascii() and (char.isalnum() or char in "+/=\r\n")):
            return index
    return len(value)


def _quantity(value: Any, found: Found) -> Any:
    if type(value) is int or type(value) is float:
        value = str(value)
    elif type(value) is not str:
        raise Mismatch(formats.FORMAT_ERROR)
    try:
        return formats.canonical(value)
    except ValueError as error:
        raise Mismatch(str(error)) from None


def _time(micro: bool) -> Decoder:
    layout = "2006-01-02T15:04:05.000000Z07:00" if micro else "2006-01-02T15:04:05Z07:00"

    def decode(value: Any, found: Found) -> Any:
        if type(value) is not str:
            raise Mismatch(json_type(value), "string")
        if not micro and _SECONDS.match(value):
            return value
        if micro and not _MICROSECONDS.match(value):
            message = (
                f'parsing time "{value}" as "{layout}": cannot parse "{value[19:]}" as ".000000"'
            )
            raise Mismatch(message)
        try:
            moment = datetime.fromisoformat(value)
            if moment.tzinfo is None or "T" not in value:
                raise ValueError(value)
            moment = moment.astimezone(UTC)
        except (ValueError, OverflowError):
            message = f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "2006"'
            raise Mismatch(message) from None
        return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")

    return decode


def _int_or_string(value: Any, found: Found) -> Any:
    if type(value) is str:
        return value
    if type(value) is not int or not _INT_RANGE["int32"][0] <= value <= _INT_RANGE["int32"][1]:
        raise Mismatch(json_type(value), "intstr.IntOrString")
    return value


def _free(value: Any, found: Found) -> Any:
    return value


_SPECIAL: dict[str, Decoder] = {
    definitions.QUANTITY: _quantity,
    definitions.TIME: _time(micro=False),
    definitions.MICRO_TIME: _time(micro=True),
    definitions.INT_OR_STRING: _int_or_string,
    definitions.FIELDS_V1: _free,
}


def _zero(schema: definitions.Definition) -> Any:
    """The value of a null in a list or a map: the zero value."""
    resolved = definitions.resolve(schema)
    kinds: dict[str, Any] = {"string": "", "integer": 0, "boolean": False, "array": []}
    return kinds.get(resolved.get("type", "object"), {})


def _array(schema: definitions.Definition) -> Decoder:
    items = schema.get("items", {})
    each, go_type, zero = _compile(items), _go_type(schema), _zero(items)

    def decode(value: Any, found: Found) -> Any:
        if not isinstance(value, list):
            raise Mismatch(json_type(value), go_type)
        return [zero if item is None else each(item, found) for item in value]

    return decode


def _map(schema: definitions.Definition) -> Decoder:
    values = schema.get("additionalProperties")
    if not isinstance(values, dict):
        return _free
    each, go_type, zero = _compile(values), _go_type(schema), _zero(values)

    def decode(value: Any, found: Found) -> Any:
        if not isinstance(value, dict):
            raise Mismatch(json_type(value), go_type)
        if type(value) is not dict:
            found.odd = True
        return {key: zero if item is None else each(item, found) for key, item in value.items()}

    return decode


def _compile(schema: definitions.Definition) -> Decoder:
    name = definitions.reference(schema)
    if name:
        return _SPECIAL.get(name) or decoder(name)
    kind = schema.get("type")
    if kind == "string":
        return _bytes if schema.get("format") == "byte" else _scalar(str, "string")
    if kind == "integer":
        return _integer(schema.get("format", "int64"))
    if kind == "boolean":
        return _scalar(bool, "bool")
    if kind == "array":
        return _array(schema)
    if kind == "object":
        return _map(schema)
    return _free


@cache
def decoder(name: str) -> Decoder:
    """The compiled decoder of a definition."""
    definition = definitions.definition(name)
    properties = definition.get("properties")
    if properties is None:
        return _compile(definition)
    return _struct(name, properties, frozenset(definition.get("required", ())))


def _struct(
    name: str, properties: dict[str, definitions.Definition], required: frozenset[str]
) -> Decoder:
    short = _short(name)
    fields: dict[str, Decoder] = {}
    zeros = of_fields(name)
    structs: dict[str, Decoder] = {}
    # An empty list or plain map that isn't required equals an absent one: the API omits it.
    emptied = frozenset(
        key
        for key, schema in properties.items()
        if key not in required
        and "$ref" not in schema
        and schema.get("type") in ("array", "object")
    )

    def decode(value: Any, found: Found) -> Any:
        if not fields:
            # On first use: definitions refer to one another in cycles.
            fields.update((key, _compile(schema)) for key, schema in properties.items())
            structs.update((key, fields[key]) for key in zeros.structs if key in fields)
        if type(value) is not dict:
            if not isinstance(value, dict):
                raise Mismatch(json_type(value), "v1." + short)
            found.odd = True
        cleaned: dict[str, Any] = {}
        for key, item in value.items():
            field = fields.get(key)
            if field is None:
                found.odd = True
            elif item is not None and (item or not _left_out(key, item, zeros.left_out, emptied)):
                try:
                    cleaned[key] = field(item, found)
                except Mismatch as mismatch:
                    mismatch.owner = mismatch.owner or short
                    mismatch.path.append(key)
                    raise
        if found.whole:
            for key, zero in zeros.written.items():
                cleaned.setdefault(key, zero)
            for key, struct in structs.items():
                if key not in cleaned:
                    cleaned[key] = struct({}, found)
        return cleaned

    return decode


def _left_out(key: str, item: Any, zeros: frozenset[str], emptied: frozenset[str]) -> bool:
    """Whether an empty value equals an absent one."""
    if isinstance(item, list | dict):
        return key in emptied
    return key in zeros
