"""Write kubeletpy/remote/generated/api.proto from the CRI field table, and its Python stubs.

The table (a JSON file: services, enums, messages with names, numbers and types) holds the facts;
the proto file is ours and has no prose. Run it after the table changes:

    python tools/gen_cri.py TABLE.json      # writes api.proto, then the stubs
    python tools/gen_cri.py --check         # exits 1 if the stubs are not what api.proto gives
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
GENERATED = ROOT / "kubeletpy" / "remote" / "generated"
PROTO = GENERATED / "api.proto"


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


def compile_stubs(out: Path) -> None:
    """Run protoc over api.proto; the stubs import each other inside the package."""
    from grpc_tools import protoc

    include = out / "include" / "kubeletpy" / "remote" / "generated"
    include.mkdir(parents=True)
    (include / "api.proto").write_text(PROTO.read_text())
    root = out / "include"
    code = protoc.main(
        [
            "protoc",
            f"-I{root}",
            f"--python_out={out}",
            f"--pyi_out={out}",
            f"--grpc_python_out={out}",
            str(include / "api.proto"),
        ]
    )
    if code:
        raise SystemExit(f"protoc failed with code {code}")


STUBS = ("api_pb2.py", "api_pb2.pyi", "api_pb2_grpc.py")


def main() -> int:
    """Entry point; see the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", nargs="?", type=Path)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if args.table:
        GENERATED.mkdir(parents=True, exist_ok=True)
        PROTO.write_text(render(json.loads(args.table.read_text())))
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary)
        compile_stubs(out)
        made = out / "kubeletpy" / "remote" / "generated"
        if args.check:
            stale = [n for n in STUBS if not filecmp.cmp(made / n, GENERATED / n, shallow=False)]
            if stale:
                print(f"out of date: {', '.join(stale)}; run tools/gen_cri.py", file=sys.stderr)
            return 1 if stale else 0
        for name in STUBS:
            (GENERATED / name).write_bytes((made / name).read_bytes())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
