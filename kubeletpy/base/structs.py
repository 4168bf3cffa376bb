"""The bases of value types and components: msgspec's Structs, and ``replace``. Pure.

A process that starts defines some five hundred of them. A dataclass compiles six methods when it is
defined, a Struct none: 17 us instead of 300, and 2.6 kB of memory instead of 12.5.

Apart, because nearly every module imports it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

from msgspec import Struct, field, structs

__all__ = ["Component", "Hidden", "HidesFields", "Struct", "field", "hidden_fields", "replace"]

T = TypeVar("T")
Hidden = Annotated[T, "hidden"]
"""The type of a field that no text may show, in a Struct that HidesFields."""


class Component(Struct, eq=False, dict=True, weakref=True):
    """The base of classes that work with other objects: their fields are what they are handed.

    A field is a parameter of the constructor, in order; state that the object makes for itself is
    assigned in ``__post_init__``, to names with an underscore. Two components are never equal, and
    the ``repr`` shows no field, since some hold secrets.
    """

    __repr__ = object.__repr__


class HidesFields:
    """A Struct that also derives from this has no Hidden field in its ``repr``.

    Such fields may hold secrets. Example: ``class Login(HidesFields, Struct)`` with the field
    ``password: Hidden[str]``.
    """

    __slots__ = ()
    __struct_fields__: ClassVar[tuple[str, ...]]

    def __repr__(self) -> str:
        hidden = hidden_fields(type(self))
        names = [name for name in self.__struct_fields__ if name not in hidden]
        reported = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__name__}({reported})"


def hidden_fields(kind: type[HidesFields]) -> set[str]:
    """The names of a class's fields that are Hidden, inherited ones included."""
    return {
        name
        for each in kind.__mro__
        for name, text in getattr(each, "__annotations__", {}).items()
        if str(text).startswith("Hidden[")
    }


if TYPE_CHECKING:
    # type checkers have rules for dataclasses' replace, which apply to a Struct too (PEP 681)
    from dataclasses import replace
else:

    def replace(value: Any, /, **changes: Any) -> Any:
        """A copy of a Struct or dataclass with some fields changed."""
        if isinstance(value, Struct):
            return structs.replace(value, **changes)
        return dataclasses.replace(value, **changes)
