"""Missing permissions in the API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

from kubeletpy.agent.takeover.preflight.node import missing_rights, needed_rights, review
from kubeletpy.base.api.types import JSON
from kubeletpy.config import default_settings
from kubeletpy.kubeapi.errors import Unavailable
from kubeletpy.kubeapi.protocol import Call, KubeApi, WatchEvent

SETTINGS = default_settings()


class Reviews(KubeApi):
    """Denies the given rights and records each access review."""

    def __init__(self, *refused: str, away: bool = False) -> None:
        self.refused, self.away = refused, away
        self.requested: list[JSON] = []

    async def answer(self, call: Call) -> JSON:
        assert (call.verb, call.resource.plural) == ("create", "selfsubjectaccessreviews")
        if self.away:
            raise Unavailable("no answer")
        attributes = cast(Any, call.body)["spec"]["resourceAttributes"]
        self.requested.append(attributes)
        name = f"{attributes['verb']} {attributes['resource']}"
        return {"status": {"allowed": name not in self.refused, "reason": "no relation"}}

    def follow(self, call: Call) -> AsyncIterator[WatchEvent]:
        raise NotImplementedError


async def test_all_rights_are_there() -> None:
    api = Reviews()
    assert await missing_rights(SETTINGS, "n", api) == []
    assert len(api.requested) == len(list(needed_rights(SETTINGS, "n")))


async def test_a_missing_right_is_named_with_its_consequence() -> None:
    found = await missing_rights(SETTINGS, "n", Reviews("create events", "update leases"))
    assert [each.text for each in found] == [
        "update leases.coordination.k8s.io kube-node-lease/n: no relation: the node becomes "
        "NotReady",
        "create events default: no relation: no events are written",
    ]


async def test_an_api_that_does_not_answer_is_unclear() -> None:
    found = await missing_rights(SETTINGS, "n", Reviews(away=True))
    assert {each.severity for each in found} == {"unclear"}


def test_rights_of_the_settings() -> None:
    local = default_settings(
        authentication={"webhook": {"enabled": False}, "x509": {"clientCAFile": "/ca"}},
        authorization={"mode": "AlwaysAllow"},
        registerNode=False,
    )
    texts = {each.text for each in needed_rights(SETTINGS, "n")}
    less = {each.text for each in needed_rights(local, "n")}
    assert texts - less == {
        "create tokenreviews.authentication.k8s.io",
        "create subjectaccessreviews.authorization.k8s.io",
        "create nodes",
    }
    rotating = {each.text for each in needed_rights(default_settings(rotateCertificates=True), "n")}
    assert rotating - texts == {"create certificatesigningrequests.certificates.k8s.io"}


def test_pods_are_those_of_the_node() -> None:
    first = next(needed_rights(SETTINGS, "n"))
    desired = {"key": "spec.nodeName", "operator": "In", "values": ["n"]}
    assert review(first, "n")["spec"]["resourceAttributes"] == {
        "verb": "list",
        "resource": "pods",
        "fieldSelector": {"requirements": [desired]},
    }
