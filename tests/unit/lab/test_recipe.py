"""Content of an image, its cache key, and the command that starts a kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tools.lab.image import default_recipe
from tools.lab.recipe import (
    PACKAGES,
    SUITES,
    Recipe,
    bootstrap_command,
    disk_command,
    install_command,
    kernel_command,
)

RECIPE = Recipe(requirements=("msgspec>=0.20",), files={"/a": "b"})


@pytest.mark.parametrize(
    "change",
    [
        {"suite": "trixie"},
        {"python": "3.13"},
        {"kernel": "6.1.1"},
        {"architecture": "arm64"},
        {"packages": PACKAGES[1:]},
        {"requirements": ()},
        {"files": {"/a": "c"}},
        {"files": {"/c": "b"}},
        {"alternatives": {}},
        {"masked": ()},
        {"size": "4G"},
    ],
    ids=str,
)
def test_each_part_changes_the_digest(change: dict[str, Any]) -> None:
    assert replace(RECIPE, **change).digest != RECIPE.digest


def test_the_same_parts_have_the_same_digest() -> None:
    again = Recipe(requirements=("msgspec>=0.20",), files={"/a": "b"})
    assert again.digest == RECIPE.digest
    assert default_recipe().digest == default_recipe().digest


def test_an_image_uses_the_iptables_of_its_kernel_for_both_families() -> None:
    assert default_recipe().alternatives == {
        "iptables": "/usr/sbin/iptables-legacy",
        "ip6tables": "/usr/sbin/ip6tables-legacy",
    }


def test_the_image_has_the_projects_dependencies_and_the_guests_program() -> None:
    recipe = default_recipe()
    assert any(each.startswith("grpcio") for each in recipe.requirements)
    assert "def answer(" in recipe.files["/opt/lab/guest.py"]
    assert "/opt/lab/guest.py /dev/ttyS1" in recipe.files["/etc/systemd/system/lab.service"]


@pytest.mark.parametrize("suite", SUITES)
def test_a_suite_has_its_own_python(suite: str) -> None:
    recipe = default_recipe(suite)
    assert (recipe.suite, recipe.python) == (suite, SUITES[suite])


def test_settings_of_apt_reach_the_bootstrap() -> None:
    command = bootstrap_command(RECIPE, "/r", ['Acquire::Check-Date "false"'])
    assert '--aptopt=Acquire::Check-Date "false"' in command


def test_commands() -> None:
    assert bootstrap_command(RECIPE, "/r")[-2:] == ["bookworm", "/r"]
    assert bootstrap_command(RECIPE, "/r")[:2] == ["unshare", "--mount"]
    assert f"--include={','.join(PACKAGES)}" in bootstrap_command(RECIPE, "/r")
    install = install_command(RECIPE, "/r", ("pip",))
    assert install[:5] == ["pip", "install", "--quiet", "--target", "/r/opt/site"]
    assert install[install.index("--python-version") + 1] == "3.11"
    assert install[-1] == "msgspec>=0.20"
    assert disk_command(RECIPE, "/r", "/d")[-4:] == ["-d", "/r", "/d", "3G"]


def test_an_image_of_arm64_has_its_wheels_and_answers_on_its_line() -> None:
    recipe = default_recipe("bookworm", "arm64")
    assert "--architectures=arm64" in bootstrap_command(recipe, "/r")
    platforms = [each for each in install_command(recipe, "/r", ()) if "linux" in each]
    assert platforms == [
        "manylinux_2_36_aarch64",
        "manylinux_2_28_aarch64",
        "manylinux2014_aarch64",
    ]
    assert "guest.py /dev/ttyS0" in recipe.files["/etc/systemd/system/lab.service"]
    assert not recipe.kernel, "that of user-mode Linux is for x86-64"


def test_a_kernel_keeps_its_disk_and_has_cgroup_v2_alone() -> None:
    command = kernel_command("/d", "/o", "/x", memory_mib=512, serial=7, more=["quiet"])
    assert command[0] == "linux.uml"
    assert {"ubd0=/o,/d", "mem=512M", "ssl1=fd:7,fd:7", "uml_dir=/x"} < set(command)
    assert "cgroup_no_v1=all" in command
    assert command[-1] == "quiet"
    other = kernel_command(
        "/d", "/o", "/x", memory_mib=512, serial=7, more=[], program="/k/linux.uml"
    )
    assert other == ["/k/linux.uml", *command[1:-1]]
