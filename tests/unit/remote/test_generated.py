"""The generated messages match the tables and the proto files, number by number."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from google.protobuf.descriptor import FieldDescriptor

from kubeletpy.remote.generated import (
    api_pb2,
    content_pb2,
    csi_pb2,
    deviceplugin_pb2,
    pluginregistration_pb2,
    podresources_pb2,
    podresources_v1alpha1_pb2,
    pods_pb2,
    snapshots_pb2,
    task_events_pb2,
)
from tools.rulebook.tables import document

ROOT = Path(__file__).resolve().parents[3]


class Made(NamedTuple):
    """One table and the module made of it."""

    name: str
    module: Any
    table: dict[str, Any]


MADE = [
    Made("cri", api_pb2, document("cri-v1.json")),
    Made("csi", csi_pb2, document("csi-v1.json")),
    Made("registration", pluginregistration_pb2, document("plugin-registration-v1.json")),
    Made("devices", deviceplugin_pb2, document("device-plugin-v1beta1.json")),
    Made("podresources", podresources_pb2, document("pod-resources-v1.json")),
    Made("podresources1", podresources_v1alpha1_pb2, document("pod-resources-v1alpha1.json")),
    Made("pods", pods_pb2, document("pods-v1alpha1.json")),
    Made("content", content_pb2, document("containerd-content-v1.json")),
    Made("snapshots", snapshots_pb2, document("containerd-snapshots-v1.json")),
    Made("task events", task_events_pb2, document("containerd-events-v1.json")),
]
each = pytest.mark.parametrize("made", MADE, ids=[made.name for made in MADE])
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
        return str(named.full_name).removeprefix(f"{field.file.package}.")
    return SCALARS[field.type]


def described(field: Any) -> tuple[str, int, str, bool]:
    """A field of the descriptor."""
    kind = type_of(field)
    return field.name, field.number, kind, field.is_repeated and not kind.startswith("map<")


@each
def test_package(made: Made) -> None:
    assert made.module.DESCRIPTOR.package == made.table["package"]


@each
def test_services(made: Made) -> None:
    have = {
        service.name: [
            (m.name, m.input_type.name, m.output_type.name, m.client_streaming, m.server_streaming)
            for m in service.methods
        ]
        for service in made.module.DESCRIPTOR.services_by_name.values()
    }
    want = {
        service["name"]: [
            (m["name"], m["request"], m["response"], m["client_streaming"], m["server_streaming"])
            for m in service["methods"]
        ]
        for service in made.table["services"]
    }
    assert have == want


def numbers(enum: Any) -> dict[str, int]:
    """An enum of a descriptor."""
    return {value.name: value.number for value in enum.values}


@each
def test_enums(made: Made) -> None:
    have = {e.name: numbers(e) for e in made.module.DESCRIPTOR.enum_types_by_name.values()}
    want = {e["name"]: {v["name"]: v["number"] for v in e["values"]} for e in made.table["enums"]}
    assert have == want


@each
def test_message_names(made: Made) -> None:
    have = set(made.module.DESCRIPTOR.message_types_by_name)
    assert have == {message["name"] for message in made.table["messages"]}


MESSAGES = [(made, message) for made in MADE for message in made.table["messages"]]


@pytest.mark.parametrize(
    ("made", "message"), MESSAGES, ids=[f"{made.name}-{m['name']}" for made, m in MESSAGES]
)
def test_message(made: Made, message: dict[str, Any]) -> None:
    is_as_tabled(made.module.DESCRIPTOR.message_types_by_name[message["name"]], message)


def is_as_tabled(descriptor: Any, message: dict[str, Any]) -> None:
    """A message and all that is defined inside it."""
    assert sorted(described(field) for field in descriptor.fields) == sorted(
        (f["name"], f["number"], f["type"], bool(f.get("repeated"))) for f in message["fields"]
    )
    for field in message["fields"]:
        made = descriptor.fields_by_name[field["name"]]
        options, oneof = made.GetOptions(), made.containing_oneof
        secret = bool(field.get("debug_redact")) or "csi_secret" in field.get("marks", ())
        assert options.debug_redact == secret
        assert options.deprecated == bool(field.get("deprecated"))
        alone = f"_{field['name']}" if field.get("optional") else None
        assert (oneof.name if oneof else None) == field.get("oneof", alone)
    for enum in message.get("enums", []):
        values = {v["name"]: v["number"] for v in enum["values"]}
        assert numbers(descriptor.enum_types_by_name[enum["name"]]) == values
    for inner in message.get("messages", []):
        is_as_tabled(descriptor.nested_types_by_name[inner["name"]], inner)


def test_stubs_are_current() -> None:
    ran = subprocess.run(
        [sys.executable, "tools/gen_protos.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
