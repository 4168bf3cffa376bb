"""What modules state: numbers that have names, and fields that need not be given.

Each package has a table of them (``test_stated.py``), so that nobody changes a limit in passing.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from msgspec import Struct, structs


def stated(place: str) -> Any:
    """What a module states.

    Args:
        place: ``package/module NAME``, or ``package/module Class.field`` for a field's default.
    """
    return _field(place).default if "." in place else getattr(*_of(place))


def is_shown(place: str) -> bool:
    """Whether a dataclass's field is part of its objects' repr, and so of logs and errors."""
    shown: bool = _field(place).repr
    return shown


def _field(place: str) -> Any:
    """Of a Struct, or of a dataclass."""
    module, name = _of(place)
    kind, _, field = name.partition(".")
    of = getattr(module, kind)
    every = structs.fields(of) if issubclass(of, Struct) else dataclasses.fields(of)
    (found,) = [each for each in every if each.name == field]
    return found


def _of(place: str) -> tuple[Any, str]:
    module, name = place.split()
    return importlib.import_module(f"kubeletpy.{module.replace('/', '.')}"), name
