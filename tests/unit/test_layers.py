"""The diagram of the layers has each package of the contract once, from top to bottom."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

from tools.gen_layers import BOX, WIDTH, draw, layers, lines

ROOT = Path(__file__).resolve().parents[2]
BOXES = re.compile(r'y="(\d+)" width="([\d.]+)" height="\d+"/><text[^>]*>([^<]+)<')


def test_the_picture_has_every_layer_in_order() -> None:
    rows = layers((ROOT / "pyproject.toml").read_text())
    found = BOXES.findall(draw(rows))
    assert [name for _, _, name in found] == [name for row in rows for name in row]
    tops = {name: int(top) for top, _, name in found}
    for above, below in pairwise(rows):
        assert max(tops[name] for name in above) + BOX < min(tops[name] for name in below)


def test_every_package_has_a_layer() -> None:
    known = {name for row in layers((ROOT / "pyproject.toml").read_text()) for name in row}
    packages = {path.parent.name for path in ROOT.glob("kubeletpy/*/__init__.py")}
    assert packages <= known


def test_the_table_of_the_page_has_the_packages_in_the_order_of_the_layers() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    table = page.partition("| package | task and parts |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \|", table, re.M)
    known = [name for row in layers((ROOT / "pyproject.toml").read_text()) for name in row]
    assert rows == [name for name in known if name != "kubeletpy_up"]


def test_names_that_do_not_fit_into_a_line_continue_in_the_next() -> None:
    names = [f"package_{number}" for number in range(20)]
    assert [name for line in lines(names) for name in line] == names
    assert len(lines(names)) > 1
    picture = draw([names])
    assert sum(float(width) for _, width, _ in BOXES.findall(picture)) > WIDTH
