"""Devices that expressions select, and expressions that are refused."""

from __future__ import annotations

import pytest

from kubeletpy_up.kinds import cel

DEVICE = {
    "name": "d",
    "attributes": {
        "model": {"string": "a100"},
        "cores": {"int": 3},
        "driver": {"version": "1.10.0"},
        "other.com/ecc": {"bool": True},
        "links": {"strings": ["a", "b"]},
    },
    "capacity": {"memory": {"value": "80Gi"}},
}
OWN = 'device.attributes["gpu.example.com"]'


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('device.driver == "gpu.example.com"', True),
        (f'{OWN}.model == "a100"', True),
        (f'{OWN}.model == "h100"', False),
        (f'{OWN}.model.matches("^a") && {OWN}.cores > 2', True),
        (f'{OWN}.driver.isGreaterThan(semver("1.9.3"))', True),
        (f'{OWN}.driver.compareTo(semver("1.10.0-rc.1")) == 1', True),
        (f'{OWN}.driver.isLessThan(semver("1.10.0"))', False),
        ('device.attributes["other.com"].ecc', True),
        (f'"b" in {OWN}.links', True),
        (f"{OWN}.links.exists(x, x == 'c')", False),
        (f'has({OWN}.nix) || "model" in {OWN}', True),
        ('has(device.attributes["nobody.com"].nix)', False),
        (
            'device.capacity["gpu.example.com"].memory.compareTo(quantity("10Gi")) >= 0',
            True,
        ),
        ('device.capacity["gpu.example.com"].memory == quantity("81920Mi")', True),
        (f"cel.bind(mine, {OWN}, mine.model == 'a100' && mine.cores == 3)", True),
        ("cel.bind(a, 1, cel.bind(b, a + 1, b == 2))", True),
        ("device.allowMultipleAllocations", False),
    ],
)
def test_selected_devices(expression: str, expected: bool) -> None:
    assert cel.problem(expression) == ""
    assert cel.selects(expression, cel.device_value("gpu.example.com", DEVICE)) is expected


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("1 +", "syntax error at 1:"),
        ("foo(1)", "undeclared reference to 'foo'"),
        ('"x".format(["y"])', "undeclared reference to 'format'"),
        ("cel.bind(a, 1)", "undeclared reference to 'bind'"),
        ("[1].all(a, [1].all(b, [1].all(c, true)))", "more than 2 loops"),
        ("(" * 1000 + "1" + ")" * 1000, "nested too deeply"),
    ],
)
def test_expressions_that_do_not_compile(expression: str, why: str) -> None:
    assert cel.problem(expression).startswith("compilation failed: ")
    assert why in cel.problem(expression)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        (f'{OWN}.nix == "a"', "CEL runtime error: no such key: nix"),
        ('device.attributes["nobody.com"].nix == "a"', "no such key: nix"),
        ("1", "must evaluate to bool"),
        (f'{OWN}.cores == "x"', "no such overload"),
        (f"{OWN}.driver.compareTo(quantity('1')) == 0", "no such overload"),
        ('quantity("x") == quantity("1")', "CEL runtime error"),
    ],
)
def test_expressions_that_fail_at_runtime(expression: str, why: str) -> None:
    assert cel.problem(expression) == ""
    with pytest.raises(cel.BadExpression, match=why):
        cel.selects(expression, cel.device_value("gpu.example.com", DEVICE))
