"""The ways to install that a release tries are rows of the page on installing."""

from __future__ import annotations

from tools.release.sources import CHECKOUT
from tools.release.trials import WAYS, commands

PAGE = (CHECKOUT / "docs" / "installing.md").read_text()


def test_each_way_has_its_commands_on_the_page() -> None:
    listed = commands(PAGE)
    assert all(listed[way] for way in WAYS)
    assert listed["pipx"] == ["pipx install .", "pipx inject kubeletpy ./up"]
