"""Fields that may hold secrets are in no object's repr, and so in no log line or error."""

from __future__ import annotations

import dataclasses
import importlib

import pytest

HIDDEN = (
    "images/credentials Credential.username",
    "images/credentials Credential.password",
    "images/credentials Credential.identity_token",
    "images/providers/cache _CachedAnswer.auths",
    "images/providers/protocol ProviderResponse.auths",
    "pods/pull_secret PullSecret.docker_config",
    "volumes/claims/model VolumeSource.source",
    "volumes/claims/model VolumeSpec.source",
    "volumes/claims/model VolumeSpec.pv",
    "volumes/claims/model VolumeSpec.claim",
    "volumes/claims/resolve ClaimVolume.source",
    "volumes/csi/requests CsiVolume.publish_context",
    "volumes/csi/requests CsiVolume.context",
    "volumes/csi/requests CsiVolume.secrets",
    "volumes/containers/env_file EnvFile.values",
    "volumes/operations/model PodMount.published",
    "volumes/files/content FileContent.data",
    "volumes/files/content TokenInput.token",
    "volumes/pod_volumes/payload DownwardInput.pod",
    "volumes/pod_volumes/payload DownwardInput.spec",
    "volumes/pod_volumes/payload DownwardInput.labels",
    "volumes/pod_volumes/payload DownwardInput.annotations",
)
"""``package/module Class.field``."""


@pytest.mark.parametrize("place", HIDDEN)
def test_a_secret_field_is_not_in_the_repr(place: str) -> None:
    module, _, attribute = place.partition(" ")
    name, _, field = attribute.partition(".")
    kind = getattr(importlib.import_module(f"kubeletpy.{module.replace('/', '.')}"), name)
    (found,) = [each for each in dataclasses.fields(kind) if each.name == field]
    assert not found.repr
