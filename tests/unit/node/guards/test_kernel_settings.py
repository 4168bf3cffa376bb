"""Kernel settings: differences, refusals, and corrections."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletpy.node.guards.at_start import (
    DESIRED,
    WrongSetting,
    compare,
    read_sysctls,
    refusal,
    settle,
)

RIGHT = {name: f"{value}\n" for name, value in DESIRED.items()}


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        ({}, []),
        ({"kernel.panic": "1\n"}, [WrongSetting("kernel.panic", 10, "1")]),
        ({"vm.panic_on_oom": "-1"}, [WrongSetting("vm.panic_on_oom", 0, "-1")]),
        ({"vm.overcommit_memory": ""}, [WrongSetting("vm.overcommit_memory", 1, "")]),
        ({"kernel.panic": "10 10"}, [WrongSetting("kernel.panic", 10, "10 10")]),
        ({"kernel.panic": "x" * 41}, [WrongSetting("kernel.panic", 10, "x" * 40)]),
        ({"kernel.panic": "x" * 40}, [WrongSetting("kernel.panic", 10, "x" * 40)]),
        (
            {"vm.overcommit_memory": "0", "kernel.panic_on_oops": "0"},
            [
                WrongSetting("vm.overcommit_memory", 1, "0"),
                WrongSetting("kernel.panic_on_oops", 1, "0"),
            ],
        ),
    ],
)
def test_differences(found: dict[str, str], wrong: list[WrongSetting]) -> None:
    assert compare({**RIGHT, **found}) == wrong


def test_a_refusal_names_all_of_them() -> None:
    assert refusal([]) == ""
    assert refusal(
        [WrongSetting("kernel.panic", 10, "1"), WrongSetting("vm.overcommit_memory", 1, "")]
    ) == (
        "kernel settings differ: kernel.panic is 1, must be 10; vm.overcommit_memory is not "
        "readable, must be 1: set them (sysctl -w kernel.panic=10 vm.overcommit_memory=1), or set "
        "protectKernelDefaults to false"
    )


def look_alike(root: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        file = root.joinpath(*name.split("."))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def test_different_settings_are_set(tmp_path: Path) -> None:
    look_alike(tmp_path, {**RIGHT, "kernel.panic": "0\n", "vm.overcommit_memory": "2\n"})
    assert not settle(tmp_path)
    assert not compare(read_sysctls(tmp_path))


def test_unwritable_settings_are_named_and_the_others_set(tmp_path: Path) -> None:
    look_alike(tmp_path, {**RIGHT, "kernel.panic": "0\n", "vm.overcommit_memory": "2\n"})
    missing = tmp_path / "kernel" / "keys" / "root_maxkeys"
    missing.unlink()
    (tmp_path / "vm" / "panic_on_oom").unlink()
    (tmp_path / "vm" / "panic_on_oom").mkdir()
    assert settle(tmp_path) == [
        "vm.panic_on_oom is not readable, must be 0 (Is a directory)",
        "kernel.keys.root_maxkeys is not readable, must be 1000000 (No such file or directory)",
    ]
    assert not missing.exists()
    assert read_sysctls(tmp_path, ["kernel.panic", "vm.overcommit_memory"]) == {
        "kernel.panic": "10",
        "vm.overcommit_memory": "1",
    }
