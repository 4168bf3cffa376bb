"""api-resources.json has the form in which tools.api_resources writes it."""

from __future__ import annotations

import json

from tools.api_resources import FILE, document


def test_a_recording_of_the_same_server_changes_nothing() -> None:
    text = FILE.read_text()
    found = json.loads(text)
    keys = ("name", "type", "format", "priority")
    tables = {
        path: {"columnDefinitions": [dict(zip(keys, each, strict=True)) for each in columns]}
        for path, columns in found["table_columns"].items()
    }
    assert document(found["version"], found["resources"], tables) == text


def test_other_fields_of_an_entry_and_a_suffix_of_the_version_are_left_out() -> None:
    version = {"major": "1", "minor": "37+", "platform": "linux/amd64", "gitVersion": "v1.37.2"}
    pods = {"name": "pods", "verbs": ["list"], "storageVersionHash": "x"}
    found = json.loads(document(version, {"/api/v1": [pods]}, {}))
    assert found["version"]["minor"] == "37"
    assert found["resources"] == {"/api/v1": [{"name": "pods", "verbs": ["list"]}]}
