"""The JSON of state files, read defensively and written without spaces. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kubeletpy.base.structs import Struct
from kubeletpy.resources.placement.go_dump import checksum_of_text


class StateError(Exception):
    """A state file can't be used; the message states what is wrong with it."""


class StateObject(Struct, frozen=True):
    """The object in a state file."""

    values: Mapping[str, Any]

    def text(self, key: str) -> str:
        """A text; empty when it is missing. Raises StateError."""
        found = self.values.get(key, "")
        if not isinstance(found, str):
            raise StateError(f"{key} is not a string")
        return found

    def verify(self, computed: int, *others: int) -> None:
        """Compare the checksum with the file's, where 0 means none. Raises StateError.

        ``others``: the checksums that further versions compute of the same contents.
        """
        noted = self.values.get("checksum", 0)
        if not isinstance(noted, int) or noted not in (0, computed, *others):
            raise StateError(f"its checksum is {str(noted)[:20]}, the computed one is {computed}")

    def inner(self) -> StateObject | None:
        """The object in ``data``, as kubelets write it from 1.37 on; None: it has none.

        The other fields repeat it for earlier kubelets. They are not read when it is damaged, as by
        a kubelet 1.37: a state without what only ``data`` holds would be wrong. Raises StateError.
        """
        data, noted = self.text("data"), self.values.get("dataChecksum") or 0
        if not data and not noted:
            return None
        if noted != (computed := checksum_of_text(data)):
            raise StateError(f"its dataChecksum is {str(noted)[:20]}, that of its data {computed}")
        return read_object(data)


def read_object(text: str) -> StateObject:
    """The object in a file, keys in any order. Raises StateError."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StateError(f"it is not JSON: {str(error)[:200]}") from error
    if not isinstance(found, dict):
        raise StateError("it is not a JSON object")
    return StateObject(found)


def write_object(values: Mapping[str, Any]) -> str:
    """An object as text, its keys in the order given."""
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False)


def write_state(
    values: Mapping[str, Any], checksum: int, of_pods: Mapping[str, Mapping[str, Any]]
) -> str:
    """The text of a state file.

    Every version reads the form without ``of_pods``. With them it is the form of 1.37: they are
    only in ``data``, and earlier versions read the rest.

    Args:
        checksum: that of the values.
        of_pods: what pods have that are placed as one, by uid.
    """
    more: dict[str, Any] = {}
    if of_pods:
        data = write_object({**values, "podEntries": of_pods})
        more = {"data": data, "dataChecksum": checksum_of_text(data)}
    return write_object({**values, "checksum": checksum, **more})


def read_text_maps(found: Any, what: str) -> dict[str, dict[str, str]]:
    """A map of maps of texts; None is the empty one. Raises StateError."""
    maps = read_maps(found, what)
    for of_pod in maps.values():
        if not all(isinstance(text, str) for text in of_pod.values()):
            raise StateError(f"{what} holds what is not a string")
    return maps


def read_maps(found: Any, what: str) -> dict[str, dict[str, Any]]:
    """A map of maps; None is the empty one. Raises StateError."""
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(of, dict) for of in found.values()):
        raise StateError(f"{what} has a form that this version does not support")
    return found
