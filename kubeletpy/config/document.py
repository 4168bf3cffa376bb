"""Converts settings back to a KubeletConfiguration document, as ``/configz`` shows it. Pure.

Must never show what is masked in messages (request headers may hold credentials).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct, structs

from kubeletpy.base.api.quantity import spelled
from kubeletpy.base.api.times import format_duration
from kubeletpy.config import decoders
from kubeletpy.config.fields import API_VERSION, KIND, ConfigField, known_fields
from kubeletpy.config.gates import FeatureGates
from kubeletpy.config.problems import MASKED
from kubeletpy.config.settings import KubeletSettings, value_at


def document(settings: KubeletSettings) -> dict[str, Any]:
    """The settings as a complete document; reading it back gives the same settings.

    Fields that are None stay out. Values of ``staticPodURLHeader`` are ``<masked>``.
    """
    result: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND}
    for field in known_fields(settings.feature_gates.version).values():
        value = value_at(settings, field.path)
        if value is None:
            continue
        *groups, name = field.path.split(".")
        place = result
        for group in groups:
            place = place.setdefault(group, {})
        place[name] = _encode(field, value)
    return result


def text_for_log(settings: KubeletSettings) -> str:
    """The complete document as JSON, without secrets: also none that the URL of manifests holds."""
    shown = document(settings)
    if url := shown.get("staticPodURL"):
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        hidden = "<masked>@" if host != parts.netloc else ""
        query = "<masked>" if parts.query else ""
        shown["staticPodURL"] = urlunsplit(
            (parts.scheme, hidden + host, parts.path, query, parts.fragment)
        )
    return json.dumps(shown, ensure_ascii=False)


def _encode(field: ConfigField, value: Any) -> Any:
    if field.path in MASKED:
        return {key: ["<masked>"] * len(each) for key, each in value.items()}
    if field.decode in (decoders.duration, decoders.duration_or_nanoseconds):
        return format_duration(value)
    if field.decode is decoders.size:
        return spelled(value, binary=True)
    if field.path == "evictionSoftGracePeriod":
        return {key: format_duration(each) for key, each in value.items()}
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, FeatureGates):
        return dict(value.explicit)
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Struct):
        pairs = structs.asdict(value).items()
        return {_camel(name): _plain(each) for name, each in pairs if each != ""}
    return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
