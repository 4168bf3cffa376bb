"""CredentialProviderConfig: parsing, and the messages about mistakes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.config.credential_providers import (
    CredentialProvider,
    EnvironmentVariable,
    TokenAttributes,
    load_credential_providers,
)
from kubeletpy.config.files import check_programs, read_credential_provider_files
from kubeletpy.config.problems import ConfigError

V1 = "kubelet.config.k8s.io/v1"
EXEC = "credentialprovider.kubelet.k8s.io"
TOKEN = {
    "serviceAccountTokenAudience": "registry",
    "cacheType": "Token",
    "requireServiceAccount": True,
}


def provider(**fields: Any) -> dict[str, Any]:
    made = {
        "name": "login",
        "matchImages": ["*.reg.io"],
        "defaultCacheDuration": "1m",
        "apiVersion": f"{EXEC}/v1",
        **fields,
    }
    return {name: value for name, value in made.items() if value is not None}


def config(*providers: Any, version: str = V1, **fields: Any) -> bytes:
    document = {"apiVersion": version, "kind": "CredentialProviderConfig", "providers": providers}
    return json.dumps({**document, **fields}).encode()


def wrong(*documents: bytes, token_gate: bool = True) -> list[str]:
    named = [(f"/etc/{number}.yaml", content) for number, content in enumerate(documents)]
    with pytest.raises(ConfigError) as caught:
        load_credential_providers(named, token_gate=token_gate)
    return [str(problem) for problem in caught.value.problems]


def test_every_field_is_read() -> None:
    full = provider(
        args=["--quick"],
        env=[{"name": "REGION", "value": "eu"}],
        tokenAttributes={
            **TOKEN,
            "requiredServiceAccountAnnotationKeys": ["reg.io/Role"],
            "optionalServiceAccountAnnotationKeys": ["reg.io/extra"],
        },
    )
    content = config(full)
    loaded = load_credential_providers([("f", content)])
    assert loaded.providers == (
        CredentialProvider(
            "login",
            ("*.reg.io",),
            60.0,
            f"{EXEC}/v1",
            ("--quick",),
            (EnvironmentVariable("REGION", "eu"),),
            TokenAttributes("registry", "Token", True, ("reg.io/Role",), ("reg.io/extra",)),
        ),
    )
    hashed = hashlib.sha256(len(content).to_bytes(8, "big") + content).hexdigest()
    assert loaded.config_hash == f"sha256:{hashed}"


@pytest.mark.parametrize(("text", "seconds"), [("0s", 0.0), ("500ms", 0.5), ("1h", 3600.0)])
def test_how_long_answers_are_kept(text: str, seconds: float) -> None:
    loaded = load_credential_providers([("f", config(provider(defaultCacheDuration=text)))])
    assert loaded.providers[0].default_cache_duration == seconds


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_versions(version: str) -> None:
    document = config(
        provider(apiVersion=f"{EXEC}/{version}"), version=f"kubelet.config.k8s.io/{version}"
    )
    assert load_credential_providers([("f", document)]).providers[0].api_version.endswith(version)


def test_files_are_joined_in_order() -> None:
    one, two = config(provider(name="one")), config(provider(name="two"), provider(name="three"))
    loaded = load_credential_providers([("a", one), ("b", two)])
    assert [each.name for each in loaded.providers] == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"name": None}, "providers[0].name: is required"),
        ({"name": ""}, 'providers[0].name is "": must be the name of a program'),
        ({"name": "../sh"}, 'providers[../sh].name is "../sh": must be the name of a program'),
        ({"name": ".."}, 'providers[..].name is "..": must be the name of a program'),
        ({"name": "a b"}, 'providers[a b].name is "a b": must be the name of a program'),
        ({"name": 5}, "providers[0].name is 5: must be a string"),
        ({"matchImages": None}, "providers[login].matchImages: is required"),
        ({"matchImages": []}, "providers[login].matchImages is []: must hold at least one"),
        (
            {"matchImages": ["https://reg.io"]},
            'providers[login].matchImages[0] is "https://reg.io": must be host[:port][/path]',
        ),
        ({"matchImages": ["a b"]}, 'providers[login].matchImages[0] is "a b": must be host'),
        ({"defaultCacheDuration": None}, "providers[login].defaultCacheDuration: is required"),
        ({"defaultCacheDuration": "-1s"}, "providers[login].defaultCacheDuration is "),
        ({"defaultCacheDuration": 5}, "providers[login].defaultCacheDuration is 5: must be a"),
        ({"apiVersion": None}, "providers[login].apiVersion: is required"),
        ({"apiVersion": "v1"}, 'providers[login].apiVersion is "v1": must be one of '),
        ({"arg": []}, "providers[login].arg is []: no such field; did you mean args?"),
        ({"args": "x"}, 'providers[login].args is "x": must be a list'),
        ({"args": ["a\0"]}, "providers[login].args[0]"),
        ({"env": [{"name": "A=B", "value": ""}]}, "providers[login].env[0].name is "),
        ({"env": [{"name": "", "value": "x"}]}, 'providers[login].env[0].name is "": is not'),
        ({"env": [{"name": "A", "value": "\0"}]}, 'providers[login].env[0].name is "A": is not'),
        ({"env": [{"value": "x"}]}, "providers[login].env[0].name: is required"),
    ],
)
def test_problems_of_a_provider(change: dict[str, Any], problem: str) -> None:
    (notified,) = wrong(config(provider(**change)))
    assert notified.startswith(f"/etc/0.yaml: {problem}")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"serviceAccountTokenAudience": None}, ".serviceAccountTokenAudience: is required"),
        ({"serviceAccountTokenAudience": ""}, '.serviceAccountTokenAudience is "": must not be'),
        ({"cacheType": None}, ".cacheType: is required"),
        ({"cacheType": "Pod"}, '.cacheType is "Pod": must be one of ServiceAccount, Token'),
        ({"requireServiceAccount": None}, ".requireServiceAccount: is required"),
        (
            {"requireServiceAccount": False, "requiredServiceAccountAnnotationKeys": ["a"]},
            '.requiredServiceAccountAnnotationKeys is ["a"]: needs requireServiceAccount: true',
        ),
        (
            {"optionalServiceAccountAnnotationKeys": ["a b"]},
            '.optionalServiceAccountAnnotationKeys is "a b": is not an annotation key',
        ),
        (
            {"optionalServiceAccountAnnotationKeys": ["a", "a"]},
            '.optionalServiceAccountAnnotationKeys is ["a", "a"]: must not hold a key twice',
        ),
        (
            {
                "requiredServiceAccountAnnotationKeys": ["a"],
                "optionalServiceAccountAnnotationKeys": ["a"],
            },
            ' is ["a"]: annotation keys cannot be both required and optional',
        ),
    ],
)
def test_problems_of_tokens(change: dict[str, Any], problem: str) -> None:
    token = {name: value for name, value in {**TOKEN, **change}.items() if value is not None}
    (notified,) = wrong(config(provider(tokenAttributes=token)))
    assert notified.startswith(f"/etc/0.yaml: providers[login].tokenAttributes{problem}")


def test_only_required_keys_need_a_service_account() -> None:
    content = config(provider(tokenAttributes={**TOKEN, "requireServiceAccount": False}))
    (found,) = load_credential_providers([("f", content)], token_gate=True).providers
    assert found.token_attributes is not None
    assert not found.token_attributes.require_service_account


def test_tokens_are_new() -> None:
    wants = provider(tokenAttributes=TOKEN)
    at = "/etc/0.yaml: providers[login].tokenAttributes: needs"
    (notified,) = wrong(config(wants), token_gate=False)
    assert notified == f"{at} feature gate KubeletServiceAccountTokenForCredentialProviders"
    (notified,) = wrong(config(wants, version=f"{V1}beta1"))
    assert notified == f"{at} a CredentialProviderConfig of kubelet.config.k8s.io/v1"
    (notified,) = wrong(config({**wants, "apiVersion": f"{EXEC}/v1beta1"}))
    assert notified == f"{at} apiVersion: credentialprovider.kubelet.k8s.io/v1"


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (b"{", "(document): is not YAML or JSON"),
        (b"\xff", "(document): is not UTF-8"),
        (b"[" * 1000, "(document): is nested too deeply"),
        (config(provider(), kind="Pod"), 'kind is "Pod": must be CredentialProviderConfig'),
        (config(provider(), version="v1"), 'apiVersion is "v1": must be kubelet.config'),
        (config(), "providers is []: must be a list of at least one provider"),
        (config(5), "providers[0] is 5: must be an object"),
        (config(provider(), provders=1), "provders is 1: no such field; did you mean providers?"),
        (config(provider(), provider()), 'providers[login].name is "login": is given twice\n'),
    ],
)
def test_problems_of_a_document(document: bytes, problem: str) -> None:
    (notified,) = wrong(document)
    assert f"{notified}\n".startswith(f"/etc/0.yaml: {problem}")


def test_all_problems_at_once_and_names_across_files() -> None:
    notified = wrong(config(provider()), config(provider(), provider(name="x", args="y")))
    assert sorted(notified) == [
        '/etc/1.yaml: providers[login].name is "login": is given twice, first in /etc/0.yaml',
        '/etc/1.yaml: providers[x].args is "y": must be a list',
    ]


def test_a_file_or_a_directory_of_files(tmp_path: Path) -> None:
    for name in ("b.yml", "a.yaml", "c.json", "d.txt", ".hidden"):
        (tmp_path / name).write_text(name)
    (tmp_path / "e.yaml").mkdir()
    found = read_credential_provider_files(str(tmp_path))
    assert [content for _, content in found] == [b"a.yaml", b"b.yml", b"c.json"]
    one = str(tmp_path / "d.txt")
    assert read_credential_provider_files(one) == [(one, b"d.txt")]
    (tmp_path / "empty").mkdir()
    for path, reason in (("empty", "holds no"), ("none", "No such file")):
        with pytest.raises(ConfigError, match=f"--image-credential-provider-config.*{reason}"):
            read_credential_provider_files(str(tmp_path / path))


def test_programs(tmp_path: Path) -> None:
    (tmp_path / "good").write_text("")
    (tmp_path / "good").chmod(0o755)
    (tmp_path / "text").write_text("")
    (tmp_path / "folder").mkdir()
    check_programs(str(tmp_path), ("good",))
    with pytest.raises(ConfigError) as caught:
        check_programs(str(tmp_path), ("good", "text", "folder", "none"))
    assert [problem.value for problem in caught.value.problems] == ["text", "folder", "none"]
    with pytest.raises(ConfigError, match="is not a directory"):
        check_programs(str(tmp_path / "none"), ())
