"""JSON patch and JSON merge patch: results, and reasons of refusals."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kubeletpy.base.api.json_patch import (
    MAX_OPERATIONS,
    DoesNotFit,
    MalformedPatch,
    TooLarge,
    json_patch,
    merge_patch,
)

OBJECT: dict[str, Any] = {"a": {"b": 1, "c/d": 2, "e~f": 3}, "list": ["x", "y"]}


def op(name: str, path: str, **more: Any) -> dict[str, Any]:
    return {"op": name, "path": path, **more}


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([], {}),
        ([op("add", "/n", value=1)], {"n": 1}),
        ([op("add", "/list/0", value="w")], {"list": ["w", "x", "y"]}),
        ([op("add", "/list/-", value="z")], {"list": ["x", "y", "z"]}),
        ([op("add", "/list/2", value="z")], {"list": ["x", "y", "z"]}),
        ([op("replace", "/list/1", value="z")], {"list": ["x", "z"]}),
        ([op("replace", "/new", value="z")], {"new": "z"}),
        ([op("remove", "/list/0")], {"list": ["y"]}),
        ([op("remove", "/a/c~1d"), op("remove", "/a/e~0f")], {"a": {"b": 1}}),
        ([op("copy", "/m", **{"from": "/list"})], {"m": ["x", "y"]}),
        ([op("move", "/list", **{"from": "/a"})], {"a": None, "list": OBJECT["a"]}),
        ([op("test", "/a/b", value=1), op("replace", "/a", value=0)], {"a": 0}),
    ],
)
def test_operations(operations: Any, expected: dict[str, Any]) -> None:
    before = copy.deepcopy(OBJECT)
    desired = {key: value for key, value in {**OBJECT, **expected}.items() if value is not None}
    assert json_patch(OBJECT, operations) == desired
    assert before == OBJECT


def test_copies_are_independent() -> None:
    operations = [op("copy", "/m", **{"from": "/list"}), op("add", "/m/-", value="z")]
    assert json_patch(OBJECT, operations)["list"] == ["x", "y"]


@pytest.mark.parametrize(
    ("has", "tested", "equal"),
    [
        (1, True, False),
        (False, 0, False),
        ([0, {"a": 1}], [0, {"a": True}], False),
        ([0, {"a": 1}], [0, {"a": 1.0}], True),
        ({"a": [], "b": None}, {"b": None, "a": []}, True),
        ({"a": None}, {}, False),
        ([1], [1, 1], False),
        ([], {}, False),
        ("1", 1, False),
        (True, True, True),
        (None, False, False),
    ],
)
def test_values_are_compared_as_json(has: Any, tested: Any, equal: bool) -> None:
    patch = [op("test", "/v", value=tested)]
    if equal:
        assert json_patch({"v": has}, patch) == {"v": has}
    else:
        with pytest.raises(DoesNotFit, match="is not what the patch tests for"):
            json_patch({"v": has}, patch)


DIGITS = "1" * 5000


@pytest.mark.parametrize(
    ("operations", "error", "message"),
    [
        ({}, MalformedPatch, "a JSON patch is a list of operations"),
        ([1], MalformedPatch, "an operation of a JSON patch is not an object"),
        ([{"op": "add"}], DoesNotFit, "an operation of a JSON patch has no path"),
        ([op("spin", "/a")], DoesNotFit, "a JSON patch has no operation 'spin'"),
        ([op("add", "/a")], MalformedPatch, "JSON patch operation add needs a value"),
        ([op("add", "a", value=1)], MalformedPatch, "invalid JSON pointer 'a'"),
        ([op("move", "/a")], MalformedPatch, "JSON patch operation 'move' needs from"),
        ([op("test", "/a/b", value=2)], DoesNotFit, "'/a/b' is not what the patch tests for"),
        ([op("remove", "/a/z")], DoesNotFit, "there is no 'z' in '/a/z'"),
        ([op("remove", "")], DoesNotFit, "a JSON patch can't remove the whole object"),
        ([op("replace", "", value=1)], DoesNotFit, "the patched object is no object"),
        ([op("remove", "/list/2")], DoesNotFit, "there is no item '2'"),
        ([op("remove", "/list/-")], DoesNotFit, "there is no item '-'"),
        ([op("add", "/list/3", value=1)], DoesNotFit, "there is no item '3'"),
        ([op("add", "/list/\u0661", value=1)], DoesNotFit, "there is no item"),
        ([op("add", f"/list/{DIGITS}", value=1)], DoesNotFit, "there is no item '111"),
        ([op("add", "/a/b/c", value=1)], DoesNotFit, "there is nothing in '/a/b/c'"),
        ([op("replace", "/a/b/c", value=1)], DoesNotFit, "there is nothing in '/a/b/c'"),
        ([op("test", "/a/b/c", value=1)], DoesNotFit, "there is nothing in '/a/b/c'"),
        ([op("test", "/a")] * (MAX_OPERATIONS + 1), TooLarge, "The allowed maximum"),
    ],
)
def test_refused(operations: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(MalformedPatch) as caught:
        json_patch(OBJECT, operations)
    assert type(caught.value) is error
    assert str(caught.value).startswith(message)
    assert len(str(caught.value)) < 250


def test_copies_of_copies() -> None:
    doubling = [op("copy", f"/list/{n}", **{"from": ""}) for n in range(1, 40)]
    with pytest.raises(TooLarge, match="copy operations"):
        json_patch({"list": [0]}, doubling)


def _nested(depth: int) -> Any:
    found: Any = {}
    for _ in range(depth):
        found = {"a": found}
    return found


def test_too_deep_nesting_is_refused() -> None:
    with pytest.raises(MalformedPatch, match="nested too deep"):
        json_patch({}, [op("add", "/a", value=_nested(100_000))])
    with pytest.raises(MalformedPatch, match="nested too deep"):
        merge_patch({}, _nested(100_000))


@pytest.mark.parametrize(
    ("original", "patch", "expected"),
    [  # from RFC 7396, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patches(original: Any, patch: Any, expected: Any) -> None:
    assert merge_patch(original, patch) == expected
