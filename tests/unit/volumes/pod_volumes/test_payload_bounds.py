"""Limits on the size of a volume's files, to the byte, and their modes."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.files.paths import PayloadError
from kubeletpy.volumes.pod_volumes.payload import (
    DownwardInput,
    FileOwner,
    build_payload,
    payload_size,
)
from kubeletpy.volumes.pod_volumes.planned import PlannedVolume

POD = Pod(
    {
        "metadata": {"name": "four", "namespace": "ns", "uid": "u"},
        "spec": {"containers": [{"name": "c"}]},
    }
)
NAME = {"fieldRef": {"fieldPath": "metadata.name"}}
FILES = {"metadata": {"name": "c"}, "data": {"a": "1234", "b": "5678"}}
DOWNWARD = DownwardInput(POD, {}, {}, {}, None)
# each has 8 bytes: kind, source, its inputs
VOLUMES: list[tuple[str, dict[str, Any], list[Any]]] = [
    ("configMap", {"name": "c"}, [FILES]),
    ("downwardAPI", {"items": [{"path": "x", **NAME}, {"path": "y", **NAME}]}, [DOWNWARD]),
    (
        "projected",
        {
            "sources": [
                {"configMap": {"name": "c", "items": [{"key": "a", "path": "a"}]}},
                {"downwardAPI": {"items": [{"path": "x", **NAME}]}},
            ]
        },
        [FILES, DOWNWARD],
    ),
    # overwritten content counts, too
    ("projected", {"sources": [{"downwardAPI": {"items": [{"path": "x", **NAME}]}}] * 2},
     [DOWNWARD] * 2),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "source", "inputs"), VOLUMES)
def test_files_up_to_the_last_byte(kind: str, source: dict[str, Any], inputs: list[Any]) -> None:
    volume = PlannedVolume("v", kind, source)
    for left in (8, 9):
        assert payload_size(build_payload(volume, inputs, "ns", FileOwner(), left)) in (4, 8)
    for left in (7, 4, 0):
        with pytest.raises(PayloadError, match=f"over {left} bytes"):
            build_payload(volume, inputs, "ns", FileOwner(), left)


@pytest.mark.parametrize(
    ("default", "own", "mode"),
    [
        (None, None, 0o644),
        (0o400, None, 0o400),
        (0, None, 0),
        (0o400, 0o600, 0o600),
        (0o400, 0, 0),
        (None, 0o7777, 0o777),
        ("x", "y", 0o644),
    ],
)
def test_modes(default: Any, own: Any, mode: int) -> None:
    for kind, item, found in (
        ("configMap", {"key": "a", "path": "a"}, FILES),
        ("downwardAPI", {"path": "a", **NAME}, DOWNWARD),
    ):
        volume = PlannedVolume(
            "v", kind, {"defaultMode": default, "items": [{**item, "mode": own}]}
        )
        (content,) = build_payload(volume, [found], "ns", FileOwner()).values()
        assert content.mode == mode


def test_one_problem_stands_alone() -> None:
    volume = PlannedVolume("v", "configMap", {"name": "c"})
    with pytest.raises(PayloadError) as caught:
        build_payload(volume, [None], "ns", FileOwner())
    assert str(caught.value) == 'configmap "c" not found'
