"""Removes private data from recordings, because they are sent to others. Pure.

Values are replaced by a keyed hash, so that equal values stay equal within a recording and cannot
be found by trial. The replaced values of a pod are variables, headers, labels, annotations,
volume attributes, and commands with arguments (but not the program). So are queries of paths, user
information in image names and URLs, and termination messages. Free texts (errors, messages of
others) may repeat them: there, each value of the pod is replaced wherever it occurs. Values that
decisions depend on stay, so that a replay decides the same. Must never raise for a pod of any
shape.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from kubeletpy.base.text import image_user_info

KEPT_ANNOTATIONS = "kubernetes.io/config."
"""Prefix of the annotations that decisions read: where a static pod came from, and its hash."""
SHORTEST_VALUE = 4
"""Characters of the shortest value that is searched for in free texts."""
MAX_PARTS = 4000
"""Values of a pod that are searched for; a text about a pod with more is hashed as one."""
_LISTS = ("containers", "initContainers", "ephemeralContainers")
_ACTIONS = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS = ("postStart", "preStop")
_TEXTS = frozenset({"message", "error", "why", "cause", "detail"})
"""Fields whose text others have written, or that quotes such a text."""
_REDACTED = _TEXTS | {"image"}
_NUMBERS = (int, float, bool, type(None))
_PLAIN = (str, *_NUMBERS)
_USER_INFO = re.compile(r"(?<=://)[^/\s@\"']+@")
_QUERY = re.compile(r"(?<=[\w/])\?[\w.~%+\-\[\]]+=[^\s\"')]*")
_CUT = "…"

Hash = Callable[[str], str]


def redacted(
    obj: Mapping[str, Any], hashed: Hash, parts: Sequence[str], unstarted: Collection[str] = ()
) -> dict[str, Any]:
    """Return the object of a pod without secret values; ``obj`` itself stays as it is.

    ``parts``: its :func:`secret_parts`. ``unstarted``: as for :class:`Texts`.
    """
    metadata, spec = _dict(obj.get("metadata")), _dict(obj.get("spec"))
    kept = {key: value for key, value in metadata.items() if key != "managedFields"}
    for key in ("annotations", "labels"):
        if isinstance(metadata.get(key), Mapping):
            kept[key] = _values(metadata[key], hashed)
    found: dict[str, Any] = {**obj, "metadata": kept}
    changed = {key: [_container(each, hashed) for each in _list(spec.get(key))] for key in _LISTS}
    if "spec" in obj:
        lists = {key: value for key, value in changed.items() if key in spec}
        volumes = [_volume(each, hashed) for each in _list(spec.get("volumes"))]
        found["spec"] = {**spec, **lists, **({"volumes": volumes} if volumes else {})}
    if "status" in obj:
        found["status"] = Texts(hashed, parts, unstarted).inputs(obj["status"])
    return found


def redacted_runtime(status: Any, texts: Texts) -> Any:
    """Return a pod's runtime status (JSON) without labels and termination messages."""
    found = dict(texts.inputs(status))
    if isinstance(found.get("labels"), Mapping):
        found["labels"] = _values(found["labels"], texts.hashed)
    return found


def unstarted_ids(status: Any) -> frozenset[str]:
    """Return the ids of the containers in a pod's runtime status (JSON) that never ran."""
    containers = map(_dict, _list(_dict(status).get("containers")))
    return frozenset(str(each.get("id")) for each in containers if not each.get("started_at"))


def _container(container: Any, hashed: Hash) -> Any:
    if not isinstance(container, Mapping):
        return container
    found = dict(container)
    if isinstance(container.get("image"), str):
        found["image"] = _image(container["image"], hashed)
    if container.get("env"):
        found["env"] = [_valued(each, hashed) for each in _list(container["env"])]
    if container.get("command"):
        found["command"] = _command(container["command"], hashed)
    if container.get("args"):
        found["args"] = [hashed(str(each)) for each in _list(container["args"])]
    for key in _ACTIONS:
        if container.get(key):
            found[key] = _action(container[key], hashed)
    lifecycle = _dict(container.get("lifecycle"))
    hooks = {key: _action(lifecycle[key], hashed) for key in _HOOKS if lifecycle.get(key)}
    if hooks:
        found["lifecycle"] = {**lifecycle, **hooks}
    return found


def _action(action: Any, hashed: Hash) -> Any:
    if not isinstance(action, Mapping):
        return action
    found = dict(action)
    execute, get = _dict(action.get("exec")), _dict(action.get("httpGet"))
    if execute.get("command"):
        found["exec"] = {**execute, "command": _command(execute["command"], hashed)}
    if get:
        found["httpGet"] = changed = dict(get)
        if get.get("httpHeaders"):
            changed["httpHeaders"] = [_valued(each, hashed) for each in _list(get["httpHeaders"])]
        path, mark, query = str(get.get("path") or "").partition("?")
        if mark:
            changed["path"] = f"{path}?{hashed(query)}"
    return found


def _command(parts: Any, hashed: Hash) -> list[str]:
    """Return the command with hashed arguments; the program stays if it is only a program."""
    found = [str(each) for each in _list(parts)]
    kept = 1 if found and not re.search(r"[\s=@]", found[0]) else 0
    return [*found[:kept], *map(hashed, found[kept:])]


def _valued(entry: Any, hashed: Hash) -> Any:
    """Return a named value with its value hashed; a reference to a value stays as it is."""
    if not isinstance(entry, Mapping) or not entry.get("value"):
        return entry
    return {**entry, "value": hashed(str(entry["value"]))}


def _values(values: Mapping[str, Any], hashed: Hash) -> dict[str, Any]:
    return {
        key: value if str(key).startswith(KEPT_ANNOTATIONS) or not value else hashed(str(value))
        for key, value in values.items()
    }


def _image(image: str, hashed: Hash) -> str:
    found = image_user_info(image)
    return image.replace(f"{found}@", f"{hashed(found)}@", 1) if found else image


def _volume(volume: Any, hashed: Hash) -> Any:
    if not isinstance(volume, Mapping):
        return volume
    found = {key: _deep(value, hashed) for key, value in volume.items()}
    for kind, field in (("csi", "volumeAttributes"), ("flexVolume", "options")):
        source = _dict(volume.get(kind))
        if isinstance(source.get(field), Mapping):
            found[kind] = {**found[kind], field: _values(source[field], hashed)}
    return found


def _deep(value: Any, hashed: Hash) -> Any:
    """Return a value without user information, annotations and labels, at any depth."""
    if isinstance(value, str):
        return _USER_INFO.sub(lambda match: f"{hashed(match[0][:-1])}@", value)
    if isinstance(value, Mapping):
        return {
            key: _values(each, hashed)
            if key in ("annotations", "labels") and isinstance(each, Mapping)
            else _deep(each, hashed)
            for key, each in value.items()
        }
    return [_deep(each, hashed) for each in value] if isinstance(value, list) else value


def secret_parts(obj: Mapping[str, Any]) -> list[str]:
    """Return the values of a pod that a free text may repeat, the longest first: what is hashed."""
    found: set[str] = set()

    def note(value: str) -> str:
        found.add(value)
        return value

    annotations = _dict(obj.get("metadata")).get("annotations")
    redacted({"metadata": {"annotations": annotations}, "spec": _dict(obj.get("spec"))}, note, ())
    parts = [each for each in found if len(each) >= SHORTEST_VALUE]
    return sorted(parts, key=lambda each: (-len(each), each))


class Texts:
    """Redacts the free texts of one line: first those of its input, then those of the decision."""

    def __init__(
        self, hashed: Hash, parts: Sequence[str] = (), unstarted: Collection[str] = ()
    ) -> None:
        """Redact with the values of a pod.

        Args:
            hashed: replaces a value.
            parts: of the pod that the line is about (:func:`secret_parts`).
            unstarted: ids of its containers that never ran (:func:`unstarted_ids`): their messages
                are the runtime's, and decisions read them.
        """
        self.hashed = hashed
        self._parts = parts
        self._unstarted = frozenset(unstarted)
        self._changed: dict[str, str] = {}

    def text(self, text: str) -> str:
        """Return a free text without the pod's values, user information and queries of URLs."""
        if len(self._parts) > MAX_PARTS:
            return self.hashed(text)
        found = text
        for value in self._parts:
            if value in found:
                found = found.replace(value, self.hashed(value))
        if _CUT in found:
            found = self._without_cut_value(found)
        found = _USER_INFO.sub(lambda match: f"{self.hashed(match[0][:-1])}@", found)
        return _QUERY.sub(lambda match: f"?{self.hashed(match[0][1:])}", found)

    def _without_cut_value(self, text: str) -> str:
        """Return a text that was cut off without the beginning of a value at its end."""
        before, _, after = text.rpartition(_CUT)
        start = before.split()[-1] if before.split() else ""
        cut = next((value for value in self._parts if _ends_in_part(before, value)), None)
        if cut is None or not start:
            return text
        return f"{before[: _overlap(before, cut)]}{self.hashed(cut)}{_CUT}{after}"

    def inputs(self, value: Any, key: str = "") -> Any:
        """Return the redacted input of a decision (JSON)."""
        return self._redacted(value, key, self._input, _PLAIN)

    def output(self, value: Any) -> Any:
        """Return a redacted decision (JSON).

        It repeats texts of the input, also as parts of longer ones.
        """
        kept = _NUMBERS if self._changed else _PLAIN
        return self._redacted(value, "", self._output, kept)

    def _redacted(
        self, value: Any, key: str, change: Callable[[str, str], str], kept: tuple[type, ...]
    ) -> Any:
        """Return a value with its texts changed; ``kept``: types of fields without texts."""
        if isinstance(value, dict):
            ended = self._ended(value)
            return {
                name: each
                if type(each) in kept and name not in _REDACTED  # most fields: saves a call
                else ended
                if name == "message" and ended
                else self._redacted(each, name, change, kept)
                for name, each in value.items()
            }
        if isinstance(value, list):
            return [self._redacted(each, key, change, kept) for each in value]
        if not isinstance(value, str):
            return value
        changed = change(value, key)
        return _image(changed, self.hashed) if key == "image" else changed

    def _input(self, value: str, key: str) -> str:
        if key not in _TEXTS:
            return value
        found = self.text(value)
        if found != value:
            self._changed[value] = found
        return found

    def _output(self, value: str, _key: str) -> str:
        for text, found in self._changed.items():
            value = value.replace(text, found)
        return value

    def _ended(self, state: Mapping[str, Any]) -> str:
        """Return the redacted message of a container that has run, of runtime or API; else ""."""
        message = state.get("message")
        if not isinstance(message, str) or not message:
            return ""
        if "containerID" in state and "exitCode" in state:  # the API's
            ran = str(state["containerID"]).partition("://")[2] not in self._unstarted
        elif "state" in state and "id" in state:  # the runtime's
            ran = bool(state.get("started_at"))
        else:
            return ""
        return self.hashed(message) if ran else self.text(message)


def _ends_in_part(text: str, value: str) -> bool:
    return _overlap(text, value) < len(text)


def _overlap(text: str, value: str) -> int:
    """Return the index in a text from which it ends in a beginning of a value, or its length."""
    for length in range(min(len(text), len(value)), SHORTEST_VALUE - 1, -1):
        if text.endswith(value[:length]):
            return len(text) - length
    return len(text)


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()
