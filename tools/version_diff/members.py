"""Reads what a proto file or a Go type declares, as one text for each member. Pure."""

from __future__ import annotations

import re

_OPEN = re.compile(r"^(?:message|service|enum)\s+(\w+)\s*\{")
_FIELD = re.compile(r"^((?:repeated |optional )?[\w.<>, ]+?)\s+(\w+)\s*=\s*(-?\d+)")
_METHOD = re.compile(r"^rpc\s+(\w+)")
_VALUE = re.compile(r"^(\w+)\s*=\s*(-?\d+)")
_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_TAGGED = re.compile(r'^\t\w+\s+(\S+)\s+`json:"(\w+)', re.MULTILINE)


def proto_members(text: str) -> dict[str, str]:
    """Members by ``Message.field``, each with its type and number."""
    found: dict[str, str] = {}
    open_blocks: list[str] = []
    for raw in text.split("\n"):
        line = raw.partition("//")[0].strip()
        if opened := _OPEN.match(line):
            open_blocks.append(opened.group(1))
            if line.endswith("}"):
                open_blocks.pop()
        elif line.startswith("oneof "):
            open_blocks.append(open_blocks[-1] if open_blocks else "")
        elif line.startswith("}"):
            del open_blocks[-1:]
        elif open_blocks:
            at = open_blocks[-1]
            if method := _METHOD.match(line):
                found[f"{at}.{method.group(1)}"] = "rpc"
                if line.endswith("{"):
                    open_blocks.append(at)
            elif field := _FIELD.match(line):
                found[f"{at}.{field.group(2)}"] = f"{field.group(1)} = {field.group(3)}"
            elif value := _VALUE.match(line):
                found[f"{at}.{value.group(1)}"] = f"= {value.group(2)}"
    return found


def go_members(text: str) -> dict[str, str]:
    """Fields by ``Type.jsonName``, each with its Go type."""
    return {
        f"{name}.{field}": kind
        for name, body in _STRUCT.findall(text)
        for kind, field in _TAGGED.findall(body)
    }
