"""The API's view of some volumes of a node."""

from __future__ import annotations

from typing import Any

from kubeletpy.volumes.claims.model import VolumeSpec, WaitCause, Waits
from kubeletpy.volumes.claims.resolve import Attached, NodeObservation, observe_node
from tests.unit.volumes.claim_objects import spec


def observe(
    node: dict[str, Any], volume: VolumeSpec, *, controller: bool = True
) -> NodeObservation:
    return observe_node(
        node,
        [volume],
        node_name="n",
        controller_attaches=controller,
        attachment=lambda of: None,
    )


def test_nothing_is_in_use_for_certain_before_the_api_shows_the_node() -> None:
    assert observe({}, spec("a")).in_use is None
    reported = {"metadata": {"resourceVersion": "1"}, "status": {"volumesInUse": ["a"]}}
    assert observe(reported, spec("a")).in_use == frozenset({"a"})


def test_only_attachable_volumes_wait_for_an_attachment() -> None:
    plain = observe({}, spec("a", attachable=False))
    assert plain.attachments == {"a": Attached()}
    found = observe({}, spec("a", attachable=True)).attachments["a"]
    assert isinstance(found, Waits)
    assert found.cause is WaitCause.NOT_IN_USE_YET


def test_no_driver_attaches_without_a_controller() -> None:
    volume = spec("a", attachable=True, kind="csi", source={"driver": "d"})
    found = observe({}, volume, controller=False).attachments["a"]
    assert isinstance(found, Waits)
    assert found.cause is WaitCause.INVALID


def test_a_volume_for_other_nodes_is_blocked() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}
    pv = {"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}}
    volume = spec("a", pv=pv)
    assert observe({"metadata": {"labels": {"zone": "z"}}}, volume).blocked == {}
    assert observe({}, volume).blocked["a"].cause is WaitCause.NODE_AFFINITY
