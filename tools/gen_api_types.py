"""Write kubeletpy/api/types.py: Kubernetes objects as TypedDicts, from the OpenAPI schema.

    python tools/gen_api_types.py            # from docs/reference/api-schema.json
    python tools/gen_api_types.py --check    # exits 1 if the file is not what the schema gives

Objects stay plain JSON at run time, so a field that we do not know survives a round trip and
reading a pod costs what json.loads costs; mypy still knows every field.
"""

from __future__ import annotations

import argparse
import json
import keyword
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = ROOT / "docs" / "reference" / "api-schema.json"
OUT = ROOT / "kubeletpy" / "api" / "types.py"
SCALARS = {"string": "str", "integer": "int", "boolean": "bool", "number": "float"}
SPECIAL = {"Quantity": "str", "Time": "str", "MicroTime": "str", "IntOrString": "int | str"}
HEADER = '''"""Kubernetes objects as plain JSON with known fields (TypedDicts).

Made by tools/gen_api_types.py from the API's OpenAPI schema; do not edit. Every field is optional
here, as it is on the wire: read with ``.get`` what may be absent. Quantities and times stay strings
(:mod:`kubeletpy.api.quantity`, :mod:`kubeletpy.api.times` read them). Objects that arrive are
shared: never change one in place.
"""

from __future__ import annotations

from typing import Any, TypedDict

JSON = dict[str, Any]
"""Any JSON object."""
'''


def class_name(definition: str) -> str:
    """The Python name of a definition; events.k8s.io's Event would hide core's."""
    short = definition.rsplit(".", 1)[-1]
    return f"EventsV1{short}" if ".events.v1." in definition else short


def annotation(schema: dict[str, Any]) -> str:
    """The Python type of a property."""
    if "$ref" in schema:
        name = class_name(schema["$ref"].rsplit("/", 1)[-1])
        return SPECIAL.get(name, "JSON" if name == "FieldsV1" else name)
    kind = schema.get("type")
    if kind == "array":
        return f"list[{annotation(schema['items'])}]"
    if kind == "object":
        extra = schema.get("additionalProperties")
        return f"dict[str, {annotation(extra)}]" if isinstance(extra, dict) else "JSON"
    return SCALARS.get(kind or "", "Any")


def render(name: str, schema: dict[str, Any]) -> str:
    """One TypedDict; in functional form if a field name is a Python keyword."""
    fields = {key: annotation(value) for key, value in schema["properties"].items()}
    if any(keyword.iskeyword(key) or not key.isidentifier() for key in fields):
        body = "".join(f"        {key!r}: {value!r},\n" for key, value in fields.items())
        body = body.replace("'", '"')
        return f'{name} = TypedDict(\n    "{name}",\n    {{\n{body}    }},\n    total=False,\n)\n'
    body = "".join(f"    {key}: {value}\n" for key, value in fields.items())
    return f"class {name}(TypedDict, total=False):\n{body}"


def module() -> str:
    """The whole file."""
    definitions = json.loads(SCHEMA.read_text())
    parts = [
        render(class_name(key), value)
        for key, value in sorted(definitions.items(), key=lambda item: class_name(item[0]))
        if value.get("properties")
    ]
    return HEADER + "".join(f"\n\n{part}" for part in parts)


def main() -> int:
    """Entry point; see the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    text = module()
    if parser.parse_args().check:
        stale = OUT.read_text() != text
        if stale:
            print(f"out of date: {OUT.name}; run tools/gen_api_types.py", file=sys.stderr)
        return 1 if stale else 0
    OUT.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
