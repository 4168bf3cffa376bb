"""Kinds of a cluster: discovery lists them, reads are empty, and writes are refused."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kubeletpy_up import resources
from kubeletpy_up.cluster_kinds import CLUSTER_KINDS, ClusterKind
from kubeletpy_up.discovery import groups, openapi
from kubeletpy_up.pki import certificates
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import ADMIN
from tests.kit.embedded import NODE, Client, make_registry, node, refusal, serving

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
CLIENT_SIDE = "application/strategic-merge-patch+json"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
SENTENCE = (
    "Deployment is not stored: this single-node API runs no controllers; apply the pod template "
    '(spec.template) as a Pod, or join a cluster (docs/embedded-api.md, "Kinds of a cluster"); '
    "in tests, use the real engine: KUBEBUILDER_ASSETS, docs/testing.md"
)
PAGE = Path(__file__).parents[4] / "docs" / "embedded-api.md"


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pki")
    certificates.ensure(directory, "n1")
    return directory


@pytest.fixture
async def admin(tmp_path: Path, pki: Path) -> AsyncIterator[Client]:
    async with serving(tmp_path, pki) as (_, client, _):
        yield client


def path_of(each: ClusterKind) -> str:
    info = resources.find_in_group(each.group, each.version, each.plural)
    assert info is not None
    scope = "/namespaces/default" if info.namespaced else ""
    return f"{info.api_path}{scope}/{info.plural}"


async def test_every_kind_reads_as_empty_and_refuses_every_write(admin: Client) -> None:
    for each in CLUSTER_KINDS:
        path = path_of(each)
        body = {"kind": each.kind, "metadata": {"name": "x"}}
        for method, target, content_type in (
            ("POST", path, "application/json"),
            ("POST", path + "?dryRun=All", "application/json"),
            ("PUT", path + "/x", "application/json"),
            ("PATCH", path + "/x", CLIENT_SIDE),
            ("PATCH", path + "/x?fieldManager=kubectl", "application/apply-patch+yaml"),
        ):
            code, status, _ = await admin.ask(method, target, body, Content_Type=content_type)
            got = (code, status["reason"], status["message"])
            assert got == (405, "MethodNotAllowed", each.refusal), (method, target)
        assert (await admin.ask("GET", path + "/x"))[0] == 404
        assert (await admin.ask("DELETE", path + "/x"))[0] == 404
        code, listed, _ = await admin.ask("GET", path)
        assert (code, listed["items"]) == (200, []), path
        assert (await admin.ask("DELETE", path))[0] == 200


async def test_the_message_names_the_cause_and_both_remedies(admin: Client) -> None:
    body = {"metadata": {"name": "web"}}
    _, status, _ = await admin.ask("POST", DEPLOYMENTS, body)
    assert status["message"] == SENTENCE
    assert status["details"] == {"group": "apps", "kind": "deployments"}


async def test_a_body_in_protobuf_is_refused_with_the_same_message(admin: Client) -> None:
    kubectl_create = "application/vnd.kubernetes.protobuf"
    body = b"k8s\x00\x0a\x15\x0a\x07apps/v1\x12\x0aDeployment"
    code, status, _ = await admin.ask("POST", DEPLOYMENTS, body, Content_Type=kubectl_create)
    assert (code, status["message"]) == (405, SENTENCE)


async def test_documents_beside_a_refused_one_are_stored(admin: Client) -> None:
    maps = "/api/v1/namespaces/default/configmaps"
    answers = [
        (await admin.ask("POST", path, {"metadata": {"name": "web"}}))[0]
        for path in (maps, DEPLOYMENTS, "/api/v1/namespaces/default/secrets")
    ]
    assert answers == [201, 405, 201]


async def test_discovery_lists_each_kind_in_each_of_its_forms(admin: Client) -> None:
    _, plain, _ = await admin.ask("GET", "/apis/apps/v1")
    deployments = next(r for r in plain["resources"] if r["name"] == "deployments")
    assert (deployments["kind"], deployments["shortNames"]) == ("Deployment", ["deploy"])
    _, found, _ = await admin.ask("GET", "/apis", Accept=AGGREGATED)
    names = [group["metadata"]["name"] for group in found["items"]]
    assert len(names) == len(set(names)), "no group twice"
    listed = {
        (group["metadata"]["name"], version["version"], resource["resource"])
        for group in found["items"]
        for version in group["versions"]
        for resource in version["resources"]
    }
    assert {(k.group, k.version, k.plural) for k in CLUSTER_KINDS if k.group} <= listed
    core = groups.resource_list("", "v1") or {}
    assert "replicationcontrollers" in {entry["name"] for entry in core["resources"]}


def test_kubectl_finds_the_patch_operation_and_a_description_of_each_kind() -> None:
    for each in CLUSTER_KINDS:
        path = f"apis/{each.group}/{each.version}" if each.group else f"api/{each.version}"
        document: Any = json.loads(openapi.v3_document(path) or b"")
        operation = document["paths"][
            path_of(each).replace("/default/", "/{namespace}/").join(("", "/{name}"))
        ]["patch"]
        assert operation["x-kubernetes-group-version-kind"]["kind"] == each.kind
        schemas = document["components"]["schemas"].values()
        assert each.refusal in {schema.get("description") for schema in schemas}


def test_no_stored_kind_is_a_kind_of_a_cluster() -> None:
    stored = {(r.group, r.kind) for r in resources.all_resources()}
    assert not stored & {(each.group, each.kind) for each in CLUSTER_KINDS}
    names = [(r.group, r.version, r.plural) for r in resources.listed_resources()]
    assert len(names) == len(set(names))


def test_an_owner_of_such_a_kind_is_unknown_to_garbage_collection() -> None:
    assert resources.find_kind("apps/v1", "ReplicaSet") is None


def test_a_node_only_gets_forbidden() -> None:
    registry = make_registry()
    for verb in (registry.create, registry.update):
        found = refusal(verb, NODE, "deployments.apps", {"metadata": {"name": "x"}}, "default")
        assert (found.code, found.reason) == (403, "Forbidden")


async def test_metrics_are_absent_where_nodes_measure_nothing(tmp_path: Path, pki: Path) -> None:
    async with serving(tmp_path, pki, node_metrics=False) as (_, admin, _):
        for accepted in ("application/json", AGGREGATED):
            _, listed, _ = await admin.ask("GET", "/apis", Accept=accepted)
            assert "metrics.k8s.io" not in str(listed) and "policy" in str(listed)
        for path in ("", "/v1beta1", "/v1beta1/nodes"):
            assert (await admin.ask("GET", f"/apis/metrics.k8s.io{path}"))[0] == 404


def test_the_page_names_every_kind() -> None:
    section = PAGE.read_text().split("## Kinds of a cluster", 1)[1]
    grouped = ("Webhook", "Admission")
    for each in CLUSTER_KINDS:
        assert each.kind in section or any(word in each.kind for word in grouped), each.kind
    assert SENTENCE in " ".join(section.split())


@pytest.fixture
def single() -> Registry:
    return make_registry(only_node="n1")


def test_a_second_node_is_refused_and_the_apis_own_node_registers(single: Registry) -> None:
    single.create(ADMIN, "nodes", node("n1"))
    expected = (
        'The Node is not registered: this single-node API serves only its own node "n1"; '
        'join a cluster (docs/embedded-api.md, "Kinds of a cluster")'
    )
    found = refusal(single.create, ADMIN, "nodes", node("n2"))
    assert (found.code, found.message) == (405, expected)
    apply = "application/apply-patch+yaml"
    found = refusal(single.patch, ADMIN, "nodes", "n2", {}, patch_type=apply)
    assert found.message == expected
    found = refusal(single.create, ADMIN, "nodes", {"metadata": {"generateName": "n"}})
    assert found.message == expected


def test_a_node_of_a_former_name_can_be_changed_and_deleted() -> None:
    registry = make_registry()
    registry.create(ADMIN, "nodes", node("old"))
    registry.only_node = "n1"
    merge = "application/merge-patch+json"
    patch = {"metadata": {"labels": {"a": "b"}}}
    assert registry.patch(ADMIN, "nodes", "old", patch, patch_type=merge)["metadata"]["labels"]
    registry.delete(ADMIN, "nodes", "old")


def test_without_the_setting_any_node_registers() -> None:
    registry = make_registry()
    for name in ("n1", "n2"):
        registry.create(ADMIN, "nodes", node(name))
    assert len(registry.list(ADMIN, "nodes")["items"]) == 2
