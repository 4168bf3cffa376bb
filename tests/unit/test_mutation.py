"""The section mutation: the settings for mutmut, and what counts as unnoticed."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tools.mutation import packages, settings, unnoticed

ROOT = Path(__file__).resolve().parents[2]


def test_only_pure_modules_of_the_package_are_mutated_by_its_own_tests() -> None:
    mutmut = tomllib.loads(settings("resources"))["tool"]["mutmut"]
    assert "kubeletpy/resources/admission/checks.py" in mutmut["only_mutate"]
    assert all(path.startswith("kubeletpy/resources/") for path in mutmut["only_mutate"])
    assert mutmut["pytest_add_cli_args_test_selection"] == ["tests/unit/resources"]
    assert all((ROOT / each).exists() for each in (*mutmut["also_copy"], *mutmut["only_mutate"]))
    assert {"resources", "pods", "podworkers"} <= set(packages())


def test_mutations_that_no_test_noticed() -> None:
    results = """
    kubeletpy.pods.resources.x_qos__mutmut_1: survived
    kubeletpy.pods.resources.xǁQosǁof__mutmut_2: no tests
    kubeletpy.pods.resources.x_qos__mutmut_3: timeout
    kubeletpy.pods.resources.x_qos__mutmut_4: segfault
"""
    assert list(unnoticed(results)) == [
        "kubeletpy.pods.resources.x_qos__mutmut_1",
        "kubeletpy.pods.resources.xǁQosǁof__mutmut_2",
    ]
