"""The list of differences names exactly the fields that nothing in the agent depends on."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import kubeletpy
from kubeletpy.config.fields import FIELDS
from kubeletpy.config.settings import KubeletSettings, attribute
from tools.rulebook.differences import listed

PACKAGE = Path(kubeletpy.__file__).parent
READ_WHILE_LOADING = {
    "image_service_endpoint",  # through image_endpoint
    "merge_default_eviction_settings",  # changes evictionHard
}


def used() -> set[str]:
    """The settings that code outside the loading of the configuration reads."""
    found: set[str] = set()
    for file in PACKAGE.rglob("*.py"):
        room = file.relative_to(PACKAGE).parts
        if room[0] != "config" or room[-1] == "host.py":
            found.update(re.findall(r"settings\.(\w+)", file.read_text()))
    return found


def test_the_list_is_right() -> None:
    rows = [each.row for each in listed("config.csv") if each.here == "no effect"]
    named = {attribute(row) for row in rows if "." not in row}
    known = {field.name for field in fields(KubeletSettings)}
    assert named <= known
    assert named == known - used() - READ_WHILE_LOADING


def test_fields_of_the_table_are_known() -> None:
    known = {field.name for field in fields(KubeletSettings)}
    assert {attribute(path.split(".")[0]) for path in FIELDS} == known
