"""What modules state: numbers that have names, and fields that need not be given.

Each room has a table of them (``test_stated.py``), so that nobody changes a limit in passing.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from msgspec import Struct, structs


def stated(place: str) -> Any:
    """What a module states.

    Args:
        place: ``room/module NAME``, or ``room/module Class.field`` for a field's default.
    """
    module, name = _of(place)
    if "." not in place:
        return getattr(module, name)
    kind, _, field = name.partition(".")
    known = getattr(module, kind)
    if not issubclass(known, Struct):
        return _field(place).default
    (found,) = [each.default for each in structs.fields(known) if each.name == field]
    return found


def is_shown(place: str) -> bool:
    """Whether a field is part of its object's repr, and so of logs and errors."""
    return _field(place).repr


def _field(place: str) -> dataclasses.Field[Any]:
    module, name = _of(place)
    kind, _, field = name.partition(".")
    (found,) = [each for each in dataclasses.fields(getattr(module, kind)) if each.name == field]
    return found


def _of(place: str) -> tuple[Any, str]:
    module, name = place.split()
    return importlib.import_module(f"kubeletpy.{module.replace('/', '.')}"), name
