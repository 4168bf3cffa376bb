"""How deeply YAML may be nested before the C loader would crash the whole process. Pure."""

from __future__ import annotations

from typing import Any

import yaml

MAX_DEPTH = 100


class TooDeep(ValueError):
    """More than MAX_DEPTH nested collections."""

    def __init__(self) -> None:
        super().__init__("is nested too deeply")


def check_depth(data: str | bytes, loader: Any) -> None:
    """Refuse YAML that is nested too deeply, without building any of it.

    Raises:
        TooDeep: it is nested too deeply.
        yaml.YAMLError: it is not YAML.
    """
    depth = 0
    for event in yaml.parse(data, loader):
        if isinstance(event, yaml.events.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise TooDeep
        elif isinstance(event, yaml.events.CollectionEndEvent):
            depth -= 1
