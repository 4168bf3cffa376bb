"""The generated messages are the CRI's, number by number, and what api.proto gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor

from kubeletpy.remote.generated import api_pb2 as cri
from tools.rulebook.tables import document

ROOT = Path(__file__).resolve().parents[3]
TABLE = document("cri-v1.json")
SCALARS = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_UINT64: "uint64",
}


def type_of(field: Any) -> str:
    """A field's type as the table writes it."""
    if field.message_type and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields
        return f"map<{type_of(key)},{type_of(value)}>"
    named = field.message_type or field.enum_type
    if named:
        return str(named.full_name).removeprefix("runtime.v1.")
    return SCALARS[field.type]


def described(field: Any) -> tuple[str, int, str, bool]:
    """A field of the descriptor."""
    kind = type_of(field)
    return field.name, field.number, kind, field.is_repeated and not kind.startswith("map<")


def test_package_and_syntax() -> None:
    assert cri.DESCRIPTOR.package == TABLE["package"]


def test_services() -> None:
    have = {
        service.name: [
            (m.name, m.input_type.name, m.output_type.name, m.client_streaming, m.server_streaming)
            for m in service.methods
        ]
        for service in cri.DESCRIPTOR.services_by_name.values()
    }
    want = {
        service["name"]: [
            (m["name"], m["request"], m["response"], m["client_streaming"], m["server_streaming"])
            for m in service["methods"]
        ]
        for service in TABLE["services"]
    }
    assert have == want


def test_enums() -> None:
    have = {
        enum.name: {value.name: value.number for value in enum.values}
        for enum in cri.DESCRIPTOR.enum_types_by_name.values()
    }
    want = {e["name"]: {v["name"]: v["number"] for v in e["values"]} for e in TABLE["enums"]}
    assert have == want


def test_message_names() -> None:
    assert set(cri.DESCRIPTOR.message_types_by_name) == {m["name"] for m in TABLE["messages"]}


@pytest.mark.parametrize("message", TABLE["messages"], ids=lambda m: m["name"])
def test_message(message: dict[str, Any]) -> None:
    descriptor = cri.DESCRIPTOR.message_types_by_name[message["name"]]
    assert sorted(described(field) for field in descriptor.fields) == sorted(
        (f["name"], f["number"], f["type"], bool(f.get("repeated"))) for f in message["fields"]
    )
    for field in message["fields"]:
        options = descriptor.fields_by_name[field["name"]].GetOptions()
        assert options.debug_redact == bool(field.get("debug_redact"))
        assert options.deprecated == bool(field.get("deprecated"))
    for enum in message.get("enums", []):
        values = descriptor.enum_types_by_name[enum["name"]].values
        assert {v.name: v.number for v in values} == {
            v["name"]: v["number"] for v in enum["values"]
        }


def test_stubs_are_current() -> None:
    pytest.importorskip("grpc_tools")
    ran = subprocess.run(
        [sys.executable, "tools/gen_cri.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
