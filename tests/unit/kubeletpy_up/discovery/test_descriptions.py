"""The descriptions that `kubectl explain` shows."""

from __future__ import annotations

import json

import pytest

from kubeletpy_up.discovery import openapi
from kubeletpy_up.discovery.openapi import described, texts
from kubeletpy_up.schema import definitions

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
