"""The image of a node that runs the integration tests, and the command that starts them there."""

from __future__ import annotations

from pathlib import Path

from tools.env import machine_abilities
from tools.lab.image import default_recipe
from tools.lab.integration import foreign, integration_recipe, lacking, unit_command


def test_the_image_has_what_tests_need_beyond_any_node() -> None:
    recipe, common = integration_recipe("bookworm"), default_recipe("bookworm")
    assert set(recipe.packages) > set(common.packages)
    assert any(each.startswith("pytest") for each in recipe.requirements)
    assert {"containerd.service", *common.masked} < set(recipe.masked)
    assert recipe.files == common.files


def test_the_projects_own_extras_are_no_requirements() -> None:
    assert foreign(["kubeletpy[tracing]", "pytest>=8"]) == ["pytest>=8"]


def test_arguments_reach_pytest_in_a_unit_that_counts_what_it_uses() -> None:
    command = unit_command(
        Path("/tree"), Path("/cache"), ["-k", "a or b", "tests/integration/x"], ["cpuset"]
    )
    script = command[-1]
    assert script.startswith("/tree/.venv/bin/python -m pytest -p tools.env.no_skips ")
    assert " -k 'a or b' tests/integration/x >/run/results/output.log " in script
    assert "--lacking=cpuset " in script
    assert "--property=MemoryAccounting=yes" in command
    assert "--setenv=KUBELETPY_CACHE=/cache" in command


def test_what_a_node_lacks_can_be_probed_and_depends_on_its_kernel() -> None:
    assert "address translation" not in lacking("bookworm", "")
    for suite, kernel in (("testing", ""), ("bookworm", "testing")):
        assert set(lacking("bookworm", "")) < set(lacking(suite, kernel))
    assert set(lacking("testing", "")) <= set(machine_abilities.FOUND)
