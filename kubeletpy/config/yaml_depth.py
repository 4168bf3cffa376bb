"""How deeply YAML may be nested before the C loader would crash the whole process. Pure."""

from __future__ import annotations

from typing import Any

import yaml

MAX_DEPTH = 100
_REFUSED_DEPTH = "maximum nesting depth"
"""Part of libyaml's message for a depth that its own scanner refuses."""


class TooDeep(ValueError):
    """More than MAX_DEPTH nested collections."""

    def __init__(self) -> None:
        super().__init__("is nested too deeply")


def check_depth(data: str | bytes, loader: Any) -> None:
    """Refuse YAML that is nested too deeply, without building any of it.

    The scanner of the C loader reads ahead of its events. From libyaml 0.2.6 on (in PyYAML 6.0.4)
    it refuses a depth of 1,000 on its own, before the first of those events is counted here.

    Raises:
        TooDeep: it is nested too deeply.
        yaml.YAMLError: it is not YAML.
    """
    depth = 0
    try:
        for event in yaml.parse(data, loader):
            if isinstance(event, yaml.events.CollectionStartEvent):
                depth += 1
                if depth > MAX_DEPTH:
                    raise TooDeep
            elif isinstance(event, yaml.events.CollectionEndEvent):
                depth -= 1
    except yaml.scanner.ScannerError as error:
        if _REFUSED_DEPTH in (error.problem or ""):
            raise TooDeep from None
        raise
