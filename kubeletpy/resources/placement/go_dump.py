"""The text of a Go value from which the kubelet computes the checksum of a state file. Pure.

The checksums of the CPU, memory and device managers' files are FNV-1a of such a text, so a reader
or writer has to reproduce it to the letter. Grammar and vectors:
docs/reference/behaviour-resources.md, rx. Types are written as the file's owner names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubeletpy.pods.pod import fnv1a_32

NIL = "<nil>"
Field = tuple[str, str, object]
"""Name, Go type and value; a value is a text that is in the grammar already, or a number."""


def checksum(type_name: str, fields: Iterable[Field]) -> int:
    """The checksum of a whole file, with the checksum field set to 0."""
    return fnv1a_32(f"({type_name}){struct(fields)}".encode("utf-8", "surrogateescape"))


def checksum_of_text(text: str) -> int:
    """The checksum of a string, as of the ``data`` of a file."""
    return fnv1a_32(b"(string)" + text.encode("utf-8", "surrogateescape"))


def struct(fields: Iterable[Field]) -> str:
    """A struct inside a map or a list, or after the name of its type."""
    return "{" + " ".join(f"{name}:({type_}){value}" for name, type_, value in fields) + "}"


def pointer(value: str) -> str:
    """Formats a pointer inside a map: its target, marked."""
    return f"<*>{value}"


def text_map(values: Mapping[str, object]) -> str:
    """A map with text keys."""
    return _map((key, values[key]) for key in sorted(values, key=_bytes))


def number_map(values: Mapping[int, object]) -> str:
    """A map with numeric keys."""
    return _map((key, values[key]) for key in sorted(values))


def items(values: Iterable[object] | None) -> str:
    """A list; None is the nil list, which differs from the empty one."""
    return NIL if values is None else "[" + " ".join(str(value) for value in values) + "]"


def _map(pairs: Iterable[tuple[object, object]]) -> str:
    return "map[" + " ".join(f"{key}:{value}" for key, value in pairs) + "]"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
