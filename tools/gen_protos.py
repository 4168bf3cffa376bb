"""Write the proto files of kubeletpy/remote/generated from tables of fields, and Python stubs.

The tables (docs/reference/cri-v1.json and others; services, enums, messages, numbers, types) have
the facts; the proto files are ours and have no prose. Run it after a table changes:

    python tools/gen_protos.py            # writes the proto files and their stubs
    python tools/gen_protos.py --check    # exits 1 if one of them is not what its table gives

A module is protoc's descriptor, handed to protobuf's builder as protoc's own modules do, but
without their version gate, which refuses every runtime older than the protoc that wrote it. There
are no _grpc modules: remote/stubs.py reads the services from the descriptors. The only option of a
table that is written is that of secrets, as protobuf's debug_redact.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TABLES = ROOT / "docs" / "reference"
GENERATED = ROOT / "kubeletpy" / "remote" / "generated"
_ONLY_FOR_OPTIONS = "google/protobuf/descriptor.proto"


@dataclass(frozen=True, slots=True)
class Source:
    """One table, and what is generated from it."""

    table: str
    stem: str
    """``api``: api.proto, api_pb2.py, api_pb2.pyi."""
    title: str

    @property
    def made(self) -> tuple[str, ...]:
        """The names of the generated files."""
        return f"{self.stem}.proto", f"{self.stem}_pb2.py", f"{self.stem}_pb2.pyi"


SOURCES = (
    Source("cri-v1.json", "api", "CRI v1"),
    Source("csi-v1.json", "csi", "CSI v1"),
    Source("plugin-registration-v1.json", "pluginregistration", "plugin registration v1"),
    Source("device-plugin-v1beta1.json", "deviceplugin", "device plugin v1beta1"),
    Source("dra-v1.json", "dra_v1", "dynamic resource allocation v1"),
    Source("dra-v1beta1.json", "dra_v1beta1", "dynamic resource allocation v1beta1"),
    Source("dra-health-v1.json", "dra_health_v1", "health of allocated devices v1"),
    Source("dra-health-v1alpha1.json", "dra_health", "health of allocated devices v1alpha1"),
    Source("pod-resources-v1.json", "podresources", "pod resources v1"),
    Source("pod-resources-v1alpha1.json", "podresources_v1alpha1", "pod resources v1alpha1"),
    Source("pods-v1alpha1.json", "pods", "pods v1alpha1"),
    Source(
        "containerd-content-v1.json",
        "content",
        "containerd's content store v1, of what a pull is made",
    ),
    Source("containerd-snapshots-v1.json", "snapshots", "containerd's snapshots v1 (Stat)"),
    Source("containerd-events-v1.json", "task_events", "containerd's events v1 (exits)"),
)


def field_line(field: dict[str, Any]) -> str:
    """One field of a message, as a line of the proto file."""
    label = next((f"{name} " for name in ("repeated", "optional") if field.get(name)), "")
    options = [f"{name} = true" for name in ("debug_redact", "deprecated") if field.get(name)]
    if "csi_secret" in field.get("marks", ()):
        options.append("debug_redact = true")
    suffix = f" [{', '.join(options)}]" if options else ""
    return f"{label}{field['type']} {field['name']} = {field['number']}{suffix};"


def enum_lines(enum: dict[str, Any], indent: str) -> list[str]:
    """An enum definition."""
    lines = [f"{indent}enum {enum['name']} {{"]
    lines += [f"{indent}    {v['name']} = {v['number']};" for v in enum["values"]]
    return [*lines, f"{indent}}}"]


def message_lines(message: dict[str, Any], indent: str = "") -> Iterator[str]:
    """A message with everything defined inside it."""
    inside = f"{indent}    "
    yield f"{indent}message {message['name']} {{"
    for enum in message.get("enums", []):
        yield from enum_lines(enum, inside)
    for inner in message.get("messages", []):
        yield from message_lines(inner, inside)
    for oneof, fields in groupby(message["fields"], key=lambda field: field.get("oneof")):
        if oneof is None:
            yield from (f"{inside}{field_line(field)}" for field in fields)
            continue
        yield f"{inside}oneof {oneof} {{"
        yield from (f"{inside}    {field_line(field)}" for field in fields)
        yield f"{inside}}}"
    yield f"{indent}}}"


def imports(table: dict[str, Any]) -> list[str]:
    """The proto files whose messages a table uses."""
    return [name for name in table.get("imports", []) if name != _ONLY_FOR_OPTIONS]


def render(table: dict[str, Any]) -> str:
    """The whole proto file for a table."""
    lines = [f'syntax = "{table["syntax"]}";', "", f"package {table['package']};"]
    if imports(table):
        lines += ["", *(f'import "{name}";' for name in imports(table))]
    for service in table["services"]:
        lines += ["", f"service {service['name']} {{"]
        for method in service["methods"]:
            request = ("stream " if method["client_streaming"] else "") + method["request"]
            response = ("stream " if method["server_streaming"] else "") + method["response"]
            lines.append(f"    rpc {method['name']}({request}) returns ({response});")
        lines.append("}")
    for enum in table["enums"]:
        lines += ["", *enum_lines(enum, "")]
    for message in table["messages"]:
        lines += ["", *message_lines(message)]
    return "\n".join(lines) + "\n"


MODULE = '''"""{title} messages. Made by tools/gen_protos.py from {stem}.proto; do not edit."""

from google.protobuf import {imported}
from google.protobuf.internal import builder

DESCRIPTOR = descriptor_pool.Default().AddSerializedFile(
    {descriptor!r}
)
builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, globals())
builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, __name__, globals())
'''


def compile_stubs(out: Path, source: Source, table: dict[str, Any]) -> None:
    """Run protoc: the module around the file's descriptor, and the .pyi unchanged."""
    import grpc_tools
    from google.protobuf import descriptor_pb2
    from grpc_tools import protoc

    include = out / "kubeletpy" / "remote" / "generated"
    include.mkdir(parents=True, exist_ok=True)
    proto, module, _ = source.made
    (include / proto).write_text(render(table))
    described = out / "descriptor"
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    arguments = [f"-I{out}", f"-I{well_known}", f"--descriptor_set_out={described}"]
    code = protoc.main(["protoc", *arguments, f"--pyi_out={out}", str(include / proto)])
    if code:
        raise SystemExit(f"protoc failed with code {code}")
    files = descriptor_pb2.FileDescriptorSet.FromString(described.read_bytes()).file
    needed = [f"{Path(name).stem}_pb2" for name in imports(table)]
    text = MODULE.format(
        title=source.title,
        stem=source.stem,
        imported=", ".join(["descriptor_pool", *needed]),
        descriptor=files[0].SerializeToString(deterministic=True),
    )
    (include / module).write_text(text)


def main() -> int:
    """Entry point; see the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary)
        for source in SOURCES:
            compile_stubs(out, source, json.loads((TABLES / source.table).read_text()))
        made = out / "kubeletpy" / "remote" / "generated"
        names = [name for source in SOURCES for name in source.made]
        if args.check:
            stale = [n for n in names if not filecmp.cmp(made / n, GENERATED / n, shallow=False)]
            if stale:
                print(f"out of date: {', '.join(stale)}; run tools/gen_protos.py", file=sys.stderr)
            return 1 if stale else 0
        for name in names:
            (GENERATED / name).write_bytes((made / name).read_bytes())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
