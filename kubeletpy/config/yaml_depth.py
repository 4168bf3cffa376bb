"""How deeply YAML may be nested before the C loader would end the whole process over it. Pure."""

from __future__ import annotations

from typing import Any

import yaml

MAX_DEPTH = 100


class TooDeep(ValueError):
    """More than MAX_DEPTH collections within each other."""

    def __init__(self) -> None:
        super().__init__("is nested too deeply")


def check_depth(data: str | bytes, loader: Any) -> None:
    """Refuse what is nested too deeply, without building any of it.

    Raises:
        TooDeep: it is.
        yaml.YAMLError: it is no YAML.
    """
    depth = 0
    for event in yaml.parse(data, loader):
        if isinstance(event, yaml.events.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise TooDeep
        elif isinstance(event, yaml.events.CollectionEndEvent):
            depth -= 1
