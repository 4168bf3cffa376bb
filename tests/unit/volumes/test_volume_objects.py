"""The objects from which a volume's files come, and where their source is stated."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.remote.generated import csi_pb2 as csi
from kubeletpy.volumes.csi.messages import MAX_NODE_ID, MAX_SEGMENTS, BadCsiAnswer, node_info
from kubeletpy.volumes.files.paths import MAX_PATH, UnsafePath, sub_path_parts
from kubeletpy.volumes.pod_volumes.payload import quoted
from kubeletpy.volumes.pod_volumes.planned import PlannedVolume, volume_objects, volume_source


@pytest.mark.parametrize(
    ("kind", "source", "objects"),
    [
        ("configMap", {"name": "a", "secretName": "b"}, [("configMap", "a")]),
        ("secret", {"name": "a", "secretName": "b"}, [("secret", "b")]),
        ("emptyDir", {"name": "a", "secretName": "b"}, []),
        ("hostPath", {"path": "/"}, []),
        (
            "projected",
            {"sources": [{"secret": {"name": "s"}}, {"downwardAPI": {}}, {"configMap": {}}]},
            [("secret", "s"), ("configMap", "")],
        ),
        ("projected", {}, []),
    ],
)
def test_objects(kind: str, source: dict[str, Any], objects: list[tuple[str, str]]) -> None:
    found = volume_objects(PlannedVolume("v", kind, source))
    assert [(each.kind, each.name) for each in found] == objects


def test_sources() -> None:
    assert volume_source({"name": "v", "hostPath": {"path": "/"}}) == ("hostPath", {"path": "/"})
    assert volume_source({"name": "v"}) == ("emptyDir", {})
    assert volume_source({"name": "v", "emptyDir": None}) == ("emptyDir", {})


def test_quoted_texts() -> None:
    assert quoted('a "b" \\ c\n\x7fé\u200b\U000e0001') == (
        '"a \\"b\\" \\\\ c\\n\\x7fé\\u200b\\U000e0001"'
    )


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("n" * MAX_NODE_ID, True),
        ("n" * (MAX_NODE_ID + 1), False),
        ("é" * (MAX_NODE_ID // 2), True),
        ("é" * (MAX_NODE_ID // 2 + 1), False),
        ("a\n", False),
        ("", False),
    ],
)
def test_the_name_a_driver_gives_the_node(name: str, fits: bool) -> None:
    answer = csi.NodeGetInfoResponse(node_id=name)
    if fits:
        assert node_info(answer).node_id == name
    else:
        with pytest.raises(BadCsiAnswer):
            node_info(answer)


@pytest.mark.parametrize(("count", "fits"), [(MAX_SEGMENTS, True), (MAX_SEGMENTS + 1, False)])
def test_the_topology_a_driver_gives_the_node(count: int, fits: bool) -> None:
    segments = {f"x/{n}": "y" for n in range(count)}
    answer = csi.NodeGetInfoResponse(
        node_id="n", accessible_topology=csi.Topology(segments=segments)
    )
    if fits:
        node_info(answer)
    else:
        with pytest.raises(BadCsiAnswer, match="topology segments"):
            node_info(answer)


@pytest.mark.parametrize("path", ["a\0b", "x" * (MAX_PATH + 1), "/a", "a/../b"])
def test_sub_paths_that_are_refused(path: str) -> None:
    with pytest.raises(UnsafePath):
        sub_path_parts(path)


def test_the_longest_sub_path() -> None:
    assert len(sub_path_parts("a/" * (MAX_PATH // 2))) == MAX_PATH // 2
