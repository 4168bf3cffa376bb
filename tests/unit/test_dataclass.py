"""The classes of ``kubeletpy.dataclass`` behave as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from kubeletpy import dataclass as ours

Decorator = Callable[..., Any]


def _classes(dataclass: Decorator) -> dict[str, Any]:
    """The same classes, made by a decorator; each is called with what it needs."""

    @dataclass(frozen=True, slots=True)
    class Frozen:
        name: str
        count: int = 2
        tags: list[str] = dataclasses.field(default_factory=list, compare=False)
        secret: str = dataclasses.field(default="s", repr=False)

    @dataclass(frozen=True, slots=True)
    class Child(Frozen):
        more: int = 0

        def __post_init__(self) -> None:
            object.__setattr__(self, "more", self.more + 1)

    class Plain(Frozen):
        """Not decorated itself."""

    @dataclass(slots=True)
    class Mutable:
        name: str
        known: dict[str, int] = dataclasses.field(init=False, default_factory=dict)

    @dataclass(slots=True, eq=False)
    class Itself:
        name: str

    @dataclass
    class Bare:
        name: str

        def __repr__(self) -> str:
            return "bare"

    @dataclass(frozen=True)
    class Own:
        name: str

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

    @dataclass(frozen=True, slots=True)
    class Unhashed:
        name: str
        known: dict[str, int] = dataclasses.field(default_factory=dict, hash=False)

    @dataclass(frozen=True, slots=True)
    class Empty:
        pass

    return {each.__name__: each for each in vars().values() if isinstance(each, type)}


STANDARD, OURS = _classes(dataclasses.dataclass), _classes(ours.dataclass)


def _outcome(do: Callable[[], Any]) -> Any:
    try:
        found = do()
    except (TypeError, AttributeError) as error:
        return type(error)
    return found if isinstance(found, bool | int | str | tuple | list) else repr(found)


def _set(made: Any) -> None:
    made.name = "b"


def _delete(made: Any) -> None:
    del made.name


TRIED: dict[str, Callable[[Any], Any]] = {
    "no arguments": lambda c: c(),
    "by position": lambda c: c("a"),
    "by keyword": lambda c: c(name="a"),
    "an unknown one": lambda c: c("a", nothing=1),
    "too many": lambda c: c("a", 1, 2, 3, 4, 5),
    "twice": lambda c: (repr(c("a")), repr(c("b"))),
    "equal": lambda c: c("a") == c("a"),
    "different": lambda c: c("a") == c("b"),
    "another class": lambda c: c("a") == "a",
    "in a set": lambda c: len({c("a"), c("a"), c("b")}),
    "set": lambda c: _set(c("a")),
    "delete": lambda c: _delete(c("a")),
    "replaced": lambda c: dataclasses.replace(c("a"), name="b"),
    "as a dict": lambda c: repr(dataclasses.asdict(c("a"))),
    "fields": lambda c: [each.name for each in dataclasses.fields(c)],
    "copied": lambda c: copy.copy(c("a")),
    "copied deeply": lambda c: copy.deepcopy(c("a")),
    "matched": lambda c: c.__match_args__,
    "its state": lambda c: c("a").__reduce_ex__(4)[2] is not None,
    "compared in part": lambda c: c("a", 2, ["x"]) == c("a", 2, ["y"]),
    "more of it": lambda c: c("a", more=3).more,
    "defaults apart": lambda c: c("a").tags is c("a").tags,
}


@pytest.mark.parametrize("kind", STANDARD)
@pytest.mark.parametrize("tried", TRIED)
def test_they_do_what_those_of_the_standard_library_do(kind: str, tried: str) -> None:
    do = TRIED[tried]
    expected = _outcome(lambda: do(STANDARD[kind]))
    assert _outcome(lambda: do(OURS[kind])) == expected


def test_an_attribute_that_cannot_be_set_is_named() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'name'"):
        OURS["Frozen"]("a").name = "b"
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'name'"):
        del OURS["Frozen"]("a").name


@ours.dataclass(frozen=True, slots=True)
class Sent:
    """One that ``pickle`` finds by its name."""

    name: str
    parts: tuple[Sent, ...] = ()


def test_one_that_is_frozen_can_be_pickled() -> None:
    sent = Sent("a", (Sent("b"),))
    assert pickle.loads(pickle.dumps(sent)) == sent


def test_one_that_holds_itself_can_be_shown() -> None:
    holder = OURS["Mutable"]("a")
    holder.known["me"] = holder
    assert "..." in repr(holder)


_COUNT = """
import builtins
compiled = []
real = builtins.exec
def count(text, *rest):
    compiled.append(text)
    return real(text, *rest)
from kubeletpy.dataclass import dataclass
builtins.exec = count

@dataclass(frozen=True, slots=True)
class Some:
    name: str

before = len(compiled)
Some("a"); after = len(compiled)
Some("b"); print(before, after > before, len(compiled) - after)
"""


def test_nothing_is_compiled_before_the_first_object_and_nothing_after_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _COUNT], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["0", "True", "0"]
