"""Fields that may hold secrets are in no object's repr, and so in no log line or error."""

from __future__ import annotations

import ast
import dataclasses
import importlib
from pathlib import Path

import pytest

from kubeletpy.base import structs
from kubeletpy.base.structs import Hidden, HidesFields, hidden_fields

HIDDEN = (
    "images/credentials Credential.username",
    "images/credentials Credential.password",
    "images/credentials Credential.identity_token",
    "images/providers/protocol _CachedAnswer.auths",
    "images/providers/protocol ProviderResponse.auths",
    "kubeapi/kubeconfig Connection.authorization",
    "kubeapi/kubeconfig Connection.proxy",
    "pods/pod PullSecret.docker_config",
    "volumes/claims/model VolumeSource.source",
    "volumes/claims/model VolumeSpec.source",
    "volumes/claims/model VolumeSpec.pv",
    "volumes/claims/model VolumeSpec.claim",
    "volumes/claims/resolve ClaimVolume.source",
    "volumes/csi/messages CsiVolume.publish_context",
    "volumes/csi/messages CsiVolume.context",
    "volumes/csi/messages CsiVolume.secrets",
    "volumes/containers/environment EnvFile.values",
    "volumes/operations/model PodMount.published",
    "volumes/files/paths FileContent.data",
    "volumes/files/paths TokenInput.token",
    "volumes/files/paths TrustInput.pem",
    "volumes/files/paths CertificateInput.key",
    "volumes/files/paths CertificateInput.chain",
    "volumes/projected/tokens BoundToken.token",
    "volumes/projected/tokens _CachedToken.token",
    "volumes/pod_volumes/set_up VolumeWork.inputs",
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
    if issubclass(kind, HidesFields):
        assert field in kind.__struct_fields__
        assert field in hidden_fields(kind)
    else:
        (found,) = [each for each in dataclasses.fields(kind) if each.name == field]
        assert not found.repr


def test_a_class_with_hidden_fields_hides_them() -> None:
    found = []
    for file in Path(structs.__file__).parents[1].rglob("*.py"):
        if "Hidden[" in (text := file.read_text()):
            classes = [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.ClassDef)]
            found += [each for each in classes if any(map(_is_hidden, each.body))]
    assert len(found) > 10
    for each in found:
        assert "HidesFields" in map(ast.unparse, each.bases), each.name


def _is_hidden(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.AnnAssign):
        return False
    return ast.unparse(statement.annotation).startswith("Hidden[")


def test_only_hidden_fields_are_not_in_the_repr() -> None:
    class Login(HidesFields, structs.Struct, frozen=True):
        user: str
        password: Hidden[str] = "p4ss"

    assert repr(Login("u")) == "Login(user='u')"


def test_an_inherited_field_stays_hidden() -> None:
    class Login(HidesFields, structs.Struct):
        password: Hidden[str]

    class NamedLogin(Login):
        name: str

    assert repr(NamedLogin("p4ss", "n")) == "NamedLogin(name='n')"
