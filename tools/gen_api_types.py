"""Write the files of kubeletpy/base/api that come from the OpenAPI schema: types, and pods' fields.

    python tools/gen_api_types.py            # from docs/reference/api-schema.json
    python tools/gen_api_types.py --check    # exits 1 if a file is not what the schema gives

``types.pyi`` has Kubernetes objects as TypedDicts for mypy, which thus checks every field. In
``types.py`` they stay plain JSON: a field that we lack survives a round trip, and reading a pod
costs what json.loads costs. ``pod_fields.py`` is the table of a pod's fields.
"""

from __future__ import annotations

import argparse
import json
import keyword
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = ROOT / "docs" / "reference" / "api-schema.json"
OUT = ROOT / "kubeletpy" / "base" / "api"
SCALARS = {"string": "str", "integer": "int", "boolean": "bool", "number": "float"}
SPECIAL = {"Quantity": "str", "Time": "str", "MicroTime": "str", "IntOrString": "int | str"}
STUB = '''"""Kubernetes objects as plain JSON with known fields (TypedDicts).

Made by tools/gen_api_types.py from the API's OpenAPI schema; do not edit. Every field is optional
here, as it is on the wire: read with ``.get`` what may be absent. Quantities and times stay strings
(:mod:`kubeletpy.base.api.quantity`, :mod:`kubeletpy.base.api.times` read them). Objects that arrive
are shared: never change one in place.
"""

from __future__ import annotations

from typing import Any, TypedDict

JSON = dict[str, Any]
"""Any JSON object."""
'''
TYPES = '''"""Kubernetes objects at run time: JSON. ``types.pyi`` gives type checkers their fields.

Made by tools/gen_api_types.py from the API's OpenAPI schema; do not edit. These types would take
1.4 MB as classes. A type checker reports a name that the stub lacks; here each name is JSON.
"""

from __future__ import annotations

from typing import Any

JSON = dict[str, Any]
"""Any JSON object."""


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    return JSON
'''
FIELDS = '''"""The fields of a pod and of all that is in one: by kind, the type of each field. Pure.

Made by tools/gen_api_types.py from the API's OpenAPI schema; do not edit. The types are written as
in :mod:`kubeletpy.base.api.types`.
"""

from __future__ import annotations

from collections.abc import Mapping

_TABLE = """
```
'''
FIELDS_OF = '''```
"""
"""A line for each kind, with its fields and their types; indented lines continue a line."""

KINDS: Mapping[str, str] = dict(
    line.split(": ", 1) for line in _TABLE.replace("\\n    ", " ").strip("`\\n").split("\\n")
)
"""Every kind with the text of its fields."""


def fields_of(kind: str) -> dict[str, str]:
    """The fields of a kind, each with its type."""
    return dict(field.split(" ", 1) for field in KINDS[kind].split("; "))
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


def stub(kinds: dict[str, dict[str, Any]]) -> str:
    """The whole file ``types.pyi``."""
    return STUB + "".join(f"\n{render(name, schema)}" for name, schema in kinds.items())


def pod_fields(kinds: dict[str, dict[str, Any]]) -> str:
    """The whole file ``pod_fields.py``: the kinds that a pod has anywhere."""
    found: dict[str, dict[str, str]] = {}
    requested = ["Pod"]
    while requested:
        name = requested.pop()
        if name in kinds and name not in found:
            found[name] = {k: annotation(v) for k, v in kinds[name]["properties"].items()}
            requested += [
                part for text in found[name].values() for part in re.findall(r"\w+", text)
            ]
    return FIELDS + "".join(map(entry, sorted(found.items()))) + FIELDS_OF


def entry(kind: tuple[str, dict[str, str]]) -> str:
    """A kind's lines of the table; no line ends inside a field."""
    name, fields = kind
    parts = [f"{key} {value};".replace(" ", "\0") for key, value in fields.items()]
    text = f"{name}: {' '.join(parts)}".removesuffix(";")
    return textwrap.fill(text, 100, subsequent_indent="    ").replace("\0", " ") + "\n"


def files() -> dict[str, str]:
    """The files' texts by their names."""
    definitions = json.loads(SCHEMA.read_text())
    named = {class_name(key): value for key, value in definitions.items()}
    kinds = {name: named[name] for name in sorted(named) if named[name].get("properties")}
    return {"types.pyi": stub(kinds), "types.py": TYPES, "pod_fields.py": pod_fields(kinds)}


def main() -> int:
    """Entry point; see the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check, stale = parser.parse_args().check, False
    for name, text in files().items():
        path = OUT / name
        if not check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"out of date: {name}; run tools/gen_api_types.py", file=sys.stderr)
            stale = True
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
