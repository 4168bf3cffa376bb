"""Data classes that cost little to define: :func:`dataclass`, for a process that has to start soon.

The standard library compiles six methods of each frozen class when it is defined (Python 3.11): of
the 429 classes that an agent loads, 2,469 functions, a third of the time that all its imports took.
Most of them are never called. Here a method is compiled when it is called first, and those that are
seldom called are shared by all classes. Type checkers see :func:`dataclasses.dataclass`;
``fields``, ``replace``, ``asdict`` and ``match`` work as with it. No field may be ``kw_only``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        cls: type | None = None, /, *, frozen: bool = False, slots: bool = False, eq: bool = True
    ) -> Any:
        """As :func:`dataclasses.dataclass`, of whose other options we need none."""
        if cls is None:
            return lambda each: dataclass(each, frozen=frozen, slots=slots, eq=eq)
        return _make(cls, frozen, slots, eq)


__all__ = ["dataclass"]

_SHARED = ("__repr__", "__eq__", "__init__")
"""What a class may define itself."""
_MADE = object()
"""Where a field's factory makes the value."""


def _make(cls: type, frozen: bool, slots: bool, eq: bool) -> Any:
    own = {name for name in _SHARED if name in cls.__dict__}
    hashed = cls.__dict__.get("__hash__") is not None
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # the standard library would make one of the signature: slow
    made: Any = dataclasses.dataclass(cls, init=False, repr=False, eq=False, slots=slots)
    if "__init__" not in own:
        made.__init__ = _later(made, "__init__", lambda: _init(made, frozen))
    if "__repr__" not in own:
        made.__repr__ = _repr
    if eq:
        if "__eq__" not in own:
            made.__eq__ = _later(made, "__eq__", lambda: _eq(made))
        if not hashed:
            made.__hash__ = _later(made, "__hash__", lambda: _hash(made)) if frozen else None
    if frozen:
        made.__setattr__, made.__delattr__ = _refuse_to_set, _refuse_to_delete
        if slots:
            made.__getstate__, made.__setstate__ = _get_state, _set_state
    return made


def _later(cls: Any, name: str, make: Callable[[], Any]) -> Callable[..., Any]:
    """A method that replaces itself when it is called first."""

    def first(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        method = make()
        setattr(cls, name, method)
        return method(self, *args, **kwargs)

    return first


def _compiled(cls: Any, name: str, text: str, known: dict[str, Any]) -> Any:
    exec(text, known)
    method = known[name]
    method.__qualname__, method.__module__ = f"{cls.__qualname__}.{name}", cls.__module__
    return method


def _init(cls: Any, frozen: bool) -> Any:
    known: dict[str, Any] = {"_made_": _MADE, "_set_": object.__setattr__}
    parameters, lines = ["_self_"], []
    for each in dataclasses.fields(cls):
        name, value = each.name, each.name
        if each.default_factory is not dataclasses.MISSING:
            known[f"_{name}_"] = each.default_factory
            made = f"_{name}_()"
            value = f"{made} if {name} is _made_ else {name}" if each.init else made
            default = "=_made_"
        elif each.default is not dataclasses.MISSING:
            known[f"_{name}_"] = each.default
            value = name if each.init else f"_{name}_"
            default = f"=_{name}_"
        else:
            default = ""
            if not each.init:
                continue  # it is set later
        if each.init:
            parameters.append(f"{name}{default}")
        lines.append(f"_set_(_self_, {name!r}, {value})" if frozen else f"_self_.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("_self_.__post_init__()")
    body = "\n ".join(lines or ["pass"])
    return _compiled(cls, "__init__", f"def __init__({', '.join(parameters)}):\n {body}", known)


def _eq(cls: Any) -> Any:
    names = [each.name for each in dataclasses.fields(cls) if each.compare]
    text = (
        "def __eq__(self, other):\n"
        " if other.__class__ is self.__class__:\n"
        f"  return {_values('self', names)} == {_values('other', names)}\n"
        " return NotImplemented"
    )
    return _compiled(cls, "__eq__", text, {})


def _hash(cls: Any) -> Any:
    hashed = [
        each.name
        for each in dataclasses.fields(cls)
        if (each.compare if each.hash is None else each.hash)
    ]
    text = f"def __hash__(self):\n return hash({_values('self', hashed)})"
    return _compiled(cls, "__hash__", text, {})


def _values(of: str, names: Sequence[str]) -> str:
    return f"({''.join(f'{of}.{name}, ' for name in names)})"


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in _shown(self))
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _shown(self: Any) -> list[dataclasses.Field[Any]]:
    return [each for each in dataclasses.fields(self) if each.repr]


def _refuse_to_set(self: object, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _get_state(self: Any) -> list[Any]:
    """For copies of objects whose attributes can't be set."""
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
