"""Discovery documents, and the OpenAPI ones as kubectl reads them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.any_pb2 import Any as AnyMessage

from kubeletpy_up import resources
from kubeletpy_up.data import load_json
from kubeletpy_up.discovery import groups as discovery
from kubeletpy_up.discovery import openapi
from kubeletpy_up.discovery.openapi import described, texts
from kubeletpy_up.schema import definitions


def test_plain_discovery_lists_what_is_served() -> None:
    core = discovery.resource_list("", "v1")
    assert core is not None
    names = [entry["name"] for entry in core["resources"]]
    assert {"pods", "pods/status", "pods/binding", "nodes", "events"} <= set(names)
    assert discovery.resource_list("apps", "v2") is None
    groups = {group["name"] for group in discovery.api_group_list()["groups"]}
    assert {"coordination.k8s.io", "events.k8s.io", "node.k8s.io", "policy"} <= groups
    for name in groups:
        group = discovery.api_group(name)
        assert group is not None
        for version in group["versions"]:
            assert discovery.resource_list(name, version["version"]) is not None
    assert discovery.api_group("stable.example.com") is None
    assert discovery.api_versions("127.0.0.1:1")["versions"] == ["v1"]


@pytest.mark.parametrize("core", [True, False])
def test_aggregated_discovery_agrees(core: bool) -> None:
    document = discovery.aggregated(core)
    assert document["kind"] == "APIGroupDiscoveryList"
    for item in document["items"]:
        group = item["metadata"].get("name", "")
        for version in item["versions"]:
            listed = discovery.resource_list(group, version["version"])
            assert listed is not None
            names = set()
            for entry in version["resources"]:
                names.add(entry["resource"])
                below = entry.get("subresources", ())
                names |= {f"{entry['resource']}/{sub['subresource']}" for sub in below}
            assert names == {entry["name"] for entry in listed["resources"]}


def test_version() -> None:
    version = discovery.version_info("arm64")
    assert (version["major"], version["minor"], version["gitVersion"]) == ("1", "37", "v1.37.0")


POD_PATH = "/api/v1/namespaces/{namespace}/pods/{name}"


def document_class() -> Any:
    """Class of openapi.v2.Document, built with protobuf from the table of fields."""
    table = load_json("openapi-v2-document.json")
    assert AnyMessage.DESCRIPTOR.full_name == "google.protobuf.Any"
    kinds = {
        "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
        "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
        "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
        "double": descriptor_pb2.FieldDescriptorProto.TYPE_DOUBLE,
    }
    file = descriptor_pb2.FileDescriptorProto(
        name="openapiv2.proto",
        package=table["package"],
        syntax="proto3",
        dependency=["google/protobuf/any.proto"],
    )
    for message in table["messages"]:
        built = file.message_type.add(name=message["name"])
        for field in message["fields"]:
            label = 3 if field.get("repeated") else 1
            added = built.field.add(name=field["name"], number=field["number"], label=label)
            if field["type"] in kinds:
                added.type = kinds[field["type"]]
            else:
                added.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
                added.type_name = "." + field["type"]
    pool = descriptor_pool.DescriptorPool()
    any_file = descriptor_pb2.FileDescriptorProto()
    AnyMessage.DESCRIPTOR.file.CopyToProto(any_file)
    pool.Add(any_file)
    pool.Add(file)
    found = pool.FindMessageTypeByName(f"{table['package']}.Document")
    return message_factory.GetMessageClass(found)


def test_v2_protobuf_is_the_json_document() -> None:
    parsed = document_class()()
    parsed.ParseFromString(openapi.v2_protobuf())
    # No field was lost to a wrong number: protobuf's own encoding has the same length.
    assert parsed.ByteSize() == len(openapi.v2_protobuf())
    plain = json.loads(openapi.v2_json())
    assert {path.name for path in parsed.paths.path} == set(plain["paths"])
    assert {d.name for d in parsed.definitions.additional_properties} == set(plain["definitions"])
    schemas = {d.name: d.value for d in parsed.definitions.additional_properties}
    container = schemas["io.k8s.api.core.v1.Container"]
    properties = {p.name: p.value for p in container.properties.additional_properties}
    assert list(container.required) == ["name"]
    extensions = {e.name: json.loads(e.value.yaml) for e in properties["env"].vendor_extension}
    assert extensions["x-kubernetes-patch-merge-key"] == "name"
    env = properties["env"]
    assert list(env.type.value) == ["array"]
    assert env.items.schema[0]._ref == "#/definitions/io.k8s.api.core.v1.EnvVar"
    gvk = {
        e.name: json.loads(e.value.yaml) for e in schemas["io.k8s.api.core.v1.Pod"].vendor_extension
    }
    assert gvk["x-kubernetes-group-version-kind"] == [{"group": "", "kind": "Pod", "version": "v1"}]
    (pod,) = [p.value for p in parsed.paths.path if p.name == POD_PATH]
    query = [
        p.parameter.non_body_parameter.query_parameter_sub_schema.name for p in pod.patch.parameters
    ]
    assert {"dryRun", "fieldValidation"} <= set(query)


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*(references(item) for item in value.values()))
    if isinstance(value, list):
        return set().union(*(references(item) for item in value))
    return set()


def test_no_reference_dangles() -> None:
    plain = json.loads(openapi.v2_json())
    assert references(plain) <= {f"#/definitions/{name}" for name in plain["definitions"]}
    for path in openapi.v3_index()["paths"]:
        body = openapi.v3_document(path)
        assert body is not None
        document = json.loads(body)
        known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
        assert references(document) <= known, path


def test_v3_has_the_documents_that_kubectl_reads() -> None:
    index = openapi.v3_index()["paths"]
    assert set(index) >= {"api/v1", "apis/coordination.k8s.io/v1"}
    assert index["api/v1"]["serverRelativeURL"].startswith("/openapi/v3/api/v1?hash=")
    assert openapi.v3_document("apis/apps/v2") is None
    document = json.loads(openapi.v3_document("api/v1") or b"")
    patch = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert patch["x-kubernetes-group-version-kind"] == {"group": "", "kind": "Pod", "version": "v1"}
    queries = {p["name"] for p in patch["parameters"] if p["in"] == "query"}
    assert {"dryRun", "fieldValidation", "fieldManager", "force"} <= queries
    assert "application/strategic-merge-patch+json" in patch["requestBody"]["content"]
    assert "patch" in document["paths"]["/api/v1/namespaces/{name}"]


def test_every_served_kind_has_a_definition_with_two_exceptions() -> None:
    lacking = {
        info.kind
        for info in resources.all_resources()
        if definitions.definition_name(info.group, info.version, info.kind) is None
    }
    assert lacking == {"NodeMetrics", "PodMetrics"}, "which nobody sends"


# The descriptions that `kubectl explain` shows.

CONTAINER = "io.k8s.api.core.v1.Container"


@pytest.mark.parametrize("name", sorted(texts()))
def test_every_description_is_of_a_field_that_is_served(name: str) -> None:
    fields = definitions.definition(name).get("properties", {})
    assert set(texts()[name]) - {""} <= set(fields)


@pytest.mark.parametrize("name", sorted(texts()))
def test_descriptions_are_sentences(name: str) -> None:
    for field, text in texts()[name].items():
        assert text[0].isupper() and text.endswith("."), field
        assert len(text) <= 160, field


def test_fields_of_containers_are_described_in_both_versions() -> None:
    document = json.loads(openapi.v3_document("api/v1") or b"")
    third = document["components"]["schemas"][CONTAINER]
    second = json.loads(openapi.v2_json())["definitions"][CONTAINER]
    for found in (second, third):
        assert found["description"] == "One container of a pod."
        assert found["properties"]["image"]["description"].startswith("Name of the image")
        assert found["properties"]["livenessProbe"]["description"].startswith("Check that restarts")


def test_a_definition_is_not_changed() -> None:
    before = json.dumps(definitions.definition(CONTAINER))
    assert described(CONTAINER, definitions.definition(CONTAINER)) != json.loads(before)
    assert json.dumps(definitions.definition(CONTAINER)) == before
