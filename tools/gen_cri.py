"""Write kubeletpy/remote/generated/api.proto from the CRI field table, and its Python stubs.

The table, docs/reference/cri-v1.json (services, enums, messages, numbers, types), has the facts;
the proto file is ours and has no prose. Run it after the table changes:

    python tools/gen_cri.py            # writes api.proto and its stubs
    python tools/gen_cri.py --check    # exits 1 if one of them is not what the table gives

The module is protoc's descriptor, handed to protobuf's builder as protoc's own modules do, but
without their version gate, which refuses every runtime older than the protoc that wrote it. There
is no _grpc module: remote/calls.py reads the services from the descriptor.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "reference" / "cri-v1.json"
GENERATED = ROOT / "kubeletpy" / "remote" / "generated"


def field_line(field: dict[str, Any]) -> str:
    """One field of a message, as a line of the proto file."""
    label = "repeated " if field.get("repeated") else ""
    options = [f"{name} = true" for name in ("debug_redact", "deprecated") if field.get(name)]
    suffix = f" [{', '.join(options)}]" if options else ""
    return f"{label}{field['type']} {field['name']} = {field['number']}{suffix};"


def enum_lines(enum: dict[str, Any], indent: str) -> list[str]:
    """An enum definition."""
    lines = [f"{indent}enum {enum['name']} {{"]
    lines += [f"{indent}    {v['name']} = {v['number']};" for v in enum["values"]]
    return [*lines, f"{indent}}}"]


def render(table: dict[str, Any]) -> str:
    """The whole proto file for a table."""
    lines = [f'syntax = "{table["syntax"]}";', "", f"package {table['package']};"]
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
        lines += ["", f"message {message['name']} {{"]
        for enum in message.get("enums", []):
            lines += enum_lines(enum, "    ")
        lines += [f"    {field_line(field)}" for field in message["fields"]]
        lines.append("}")
    return "\n".join(lines) + "\n"


MODULE = '''"""The CRI v1 messages. Written by tools/gen_cri.py from api.proto; do not edit."""

from google.protobuf import descriptor_pool
from google.protobuf.internal import builder

DESCRIPTOR = descriptor_pool.Default().AddSerializedFile(
    {descriptor!r}
)
builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, globals())
builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, __name__, globals())
'''


def compile_stubs(out: Path, proto: str) -> None:
    """Run protoc over api.proto: api_pb2.py around its descriptor, and api_pb2.pyi as it comes."""
    from google.protobuf import descriptor_pb2
    from grpc_tools import protoc

    include = out / "kubeletpy" / "remote" / "generated"
    include.mkdir(parents=True)
    (include / "api.proto").write_text(proto)
    described = out / "descriptor"
    arguments = [f"-I{out}", f"--descriptor_set_out={described}", f"--pyi_out={out}"]
    code = protoc.main(["protoc", *arguments, str(include / "api.proto")])
    if code:
        raise SystemExit(f"protoc failed with code {code}")
    files = descriptor_pb2.FileDescriptorSet.FromString(described.read_bytes()).file
    descriptor = files[0].SerializeToString(deterministic=True)
    (include / "api_pb2.py").write_text(MODULE.format(descriptor=descriptor))


MADE = ("api.proto", "api_pb2.py", "api_pb2.pyi")


def main() -> int:
    """Entry point; see the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary)
        compile_stubs(out, render(json.loads(TABLE.read_text())))
        made = out / "kubeletpy" / "remote" / "generated"
        if args.check:
            stale = [n for n in MADE if not filecmp.cmp(made / n, GENERATED / n, shallow=False)]
            if stale:
                print(f"out of date: {', '.join(stale)}; run tools/gen_cri.py", file=sys.stderr)
            return 1 if stale else 0
        for name in MADE:
            (GENERATED / name).write_bytes((made / name).read_bytes())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
