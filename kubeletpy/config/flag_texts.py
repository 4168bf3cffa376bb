"""Every flag with the value that is in effect, however it was set: for ``/flagz``. Pure.

Must never show what is masked in the document.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeletpy.config.document import document
from kubeletpy.config.flag_table import FLAGS
from kubeletpy.config.flags import NodeFlags
from kubeletpy.config.settings import KubeletSettings


def flag_texts(settings: KubeletSettings, flags: NodeFlags) -> dict[str, str]:
    """Values by flag, without dashes; flags that do nothing here are left out."""
    full = document(settings)
    texts: dict[str, str] = {}
    for name, flag in FLAGS.items():
        if flag.field:
            texts[name] = _text(_at(full, flag.field))
        elif flag.note != "meaningless":
            texts[name] = _text(getattr(flags, name.replace("-", "_"), ""))
    return texts


def _at(document: Mapping[str, Any], path: str) -> Any:
    value: Any = document
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return "" if value is None else value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return ",".join(f"{key}={_text(each)}" for key, each in sorted(value.items()))
    if isinstance(value, list | tuple):
        return "[" + ",".join(_text(each) for each in value) + "]"
    return str(value)
