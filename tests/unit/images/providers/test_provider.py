"""Credential providers: for which images they run, how often, and with which account."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from kubeletpy.base.host.program import Program, ProgramFailed
from kubeletpy.config import ConfigError, NodeFlags, default_settings
from kubeletpy.config.credential_providers import CredentialProvider, TokenAttributes
from kubeletpy.images.credentials import AccountSource
from kubeletpy.images.providers.protocol import ProviderError
from kubeletpy.images.providers.provider import (
    MAX_CALLS,
    AccountError,
    Plugins,
    Provider,
    providers_from_flags,
)
from kubeletpy.images.reference import Repository
from kubeletpy.metrics.registry import Metrics
from kubeletpy.metrics.resources import CredentialProviderMetrics
from kubeletpy.pods.pod import Pod

pytestmark = pytest.mark.virtual_time

V1 = "credentialprovider.kubelet.k8s.io/v1"


@dataclass
class World(CredentialProviderMetrics):
    """Programs and accounts in memory."""

    key_type: str = "Image"
    cache: str | None = None
    seconds: float = 1.0
    error: Exception | None = None
    echo: bool = False
    annotations: dict[str, str] = field(default_factory=dict)
    account_error: AccountError | None = None
    requests: list[dict[str, Any]] = field(default_factory=list)
    running: int = 0
    most: int = 0
    tokens: int = 0
    counted: list[tuple[str, bool]] = field(default_factory=list)

    async def run(self, program: Program, request: bytes, *, hidden: Sequence[str] = ()) -> bytes:
        requested = json.loads(request)
        self.requests.append(requested)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.running -= 1
        if self.error is not None:
            raise self.error
        password = requested["serviceAccountToken"] if self.echo else f"p{len(self.requests)}"
        document = {
            "apiVersion": V1,
            "kind": "CredentialProviderResponse",
            "cacheKeyType": self.key_type,
            "cacheDuration": self.cache,
            "auth": {"*.reg.io": {"username": program.path, "password": password}},
        }
        return json.dumps(document).encode()

    async def read_account(self, namespace: str, name: str) -> tuple[str, Mapping[str, str]]:
        if self.account_error is not None:
            raise self.account_error
        return f"uid-{name}", self.annotations

    async def token(self, pod: Pod, account: AccountSource, audience: str) -> str:
        self.tokens += 1
        return f"token-of-{pod.uid}-{account.name}-{audience}"

    def provider_called(self, name: str, seconds: float, *, failed: bool) -> None:
        self.counted.append((name, failed))

    def provider(self, name: str = "login", **settings: Any) -> Provider:
        full = {"match_images": ("*.reg.io",), "default_cache_duration": 60.0, **settings}
        made = CredentialProvider(name, api_version=V1, **full)
        return Provider(made, Program(name), self.run, self, self)


def pod(uid: str = "u1", account: str = "") -> Pod:
    metadata = {"name": f"p-{uid}", "namespace": "ns", "uid": uid}
    spec = {"containers": [{"name": "c"}], "serviceAccountName": account}
    return Pod(cast(Any, {"metadata": metadata, "spec": spec}))


def tokens(cache_type: str = "ServiceAccount", **more: Any) -> TokenAttributes:
    return TokenAttributes("aud", cache_type, more.pop("require", True), **more)


@pytest.mark.parametrize(
    ("pattern", "repository", "fits"),
    [
        ("*.reg.io", "a.reg.io/x", True),
        ("*.reg.io", "reg.io/x", False),
        ("*.*.reg.io", "a.b.reg.io/x", True),
        ("app*.reg.io", "app1.reg.io/x", True),
        ("reg.*", "reg.io/x", True),
        ("reg.io:8080/path", "reg.io:8080/path/x", True),
        ("reg.io:8080/path", "reg.io:8080/other/x", False),
        ("reg.io", "reg.io:8080/x", False),
        ("reg.io:*", "reg.io:8080/x", False),
        ("docker.io", "docker.io/library/busybox", True),
    ],
)
async def test_images_that_match_a_provider(pattern: str, repository: str, fits: bool) -> None:
    provider = World().provider(match_images=("other.io", pattern))
    assert provider.fits(Repository.parse(repository)) is fits


@pytest.mark.parametrize(("key_type", "calls"), [("Image", 3), ("Registry", 2), ("Global", 1)])
async def test_answers_are_kept(key_type: str, calls: int) -> None:
    world = World(key_type)
    provider = world.provider()
    for _ in range(3):
        for name in ("a.reg.io/x", "a.reg.io/y", "b.reg.io/x"):
            await provider.auths(name, pod())
    assert len(world.requests) == calls
    await asyncio.sleep(61)
    await provider.auths("a.reg.io/x", pod())
    assert len(world.requests) == calls + 1
    world.cache = "0s"
    await asyncio.sleep(61)
    await provider.auths("a.reg.io/x", pod())
    await provider.auths("a.reg.io/x", pod())
    assert len(world.requests) == calls + 3


async def test_simultaneous_pulls_share_one_call() -> None:
    world = World(cache="0s")
    provider = world.provider()
    answers = await asyncio.gather(*(provider.auths("a.reg.io/x", pod(str(n))) for n in range(20)))
    assert len(world.requests) == 1
    assert len({json.dumps(auths) for auths, _ in answers}) == 1


async def test_answers_for_a_registry_are_waited_for() -> None:
    world = World("Registry", cache="10s")
    provider = world.provider()
    await provider.auths("a.reg.io/first", pod())
    await asyncio.sleep(20)
    await asyncio.gather(*(provider.auths(f"a.reg.io/{n}", pod()) for n in range(20)))
    assert len(world.requests) == 2, "that they hold for a registry is known from the first answer"
    world.error = ProgramFailed("down")
    await asyncio.sleep(20)
    requested = (provider.auths(f"a.reg.io/{n}", pod()) for n in range(3))
    failed = await asyncio.gather(*requested, return_exceptions=True)
    assert [str(error) for error in failed] == ["down"] * 3


async def test_calls_at_once_are_bounded() -> None:
    world = World()
    provider = world.provider()
    await asyncio.gather(*(provider.auths(f"a.reg.io/{n}", pod()) for n in range(MAX_CALLS * 3)))
    assert world.most == MAX_CALLS


async def test_a_canceled_pull_does_not_end_the_shared_call() -> None:
    world = World()
    provider = world.provider()
    first = asyncio.create_task(provider.auths("a.reg.io/x", pod("1")))
    second = asyncio.create_task(provider.auths("a.reg.io/x", pod("2")))
    await asyncio.sleep(0.5)
    first.cancel()
    await second
    assert len(world.requests) == 1
    third = asyncio.create_task(provider.auths("b.reg.io/x", pod("2")))
    await asyncio.sleep(0.5)
    await provider.close()
    assert world.running == 0
    await asyncio.wait([third])
    assert third.cancelled()


async def test_accounts_and_tokens() -> None:
    world = World(annotations={"role": "puller", "extra": "e", "secret": "not for it"})
    provider = world.provider(
        token_attributes=tokens(
            required_service_account_annotation_keys=("role",),
            optional_service_account_annotation_keys=("extra", "absent"),
        )
    )
    _, account = await provider.auths("a.reg.io/x", pod("u1", "robot"))
    assert account == AccountSource("uid-robot", "ns", "robot")
    (requested,) = world.requests
    assert requested["serviceAccountToken"] == "token-of-u1-robot-aud"
    assert requested["serviceAccountAnnotations"] == {"role": "puller", "extra": "e"}
    await provider.auths("a.reg.io/x", pod("u2", "robot"))
    assert (len(world.requests), world.tokens) == (1, 1), "kept by account"
    await provider.auths("a.reg.io/x", pod("u1", "other"))
    world.annotations = {**world.annotations, "extra": "changed"}
    await provider.auths("a.reg.io/x", pod("u1", "robot"))
    assert len(world.requests) == 3
    world.annotations = {}
    assert await provider.auths("a.reg.io/x", pod("u1", "robot")) == ({}, None)
    assert await provider.auths("a.reg.io/x", pod("u1")) == ({}, None)
    assert len(world.requests) == 3


async def test_answers_kept_by_token() -> None:
    world = World(echo=True)
    provider = world.provider(token_attributes=tokens("Token"))
    for uid in ("u1", "u2", "u1", "u2"):
        auths, _ = await provider.auths("a.reg.io/x", pod(uid, "robot"))
        assert auths["*.reg.io"]["password"] == f"token-of-{uid}-robot-aud"
    assert len(world.requests) == 2


async def test_pods_of_one_account_share_no_call_without_caching() -> None:
    world = World(cache="0s")
    provider = world.provider(token_attributes=tokens())
    await asyncio.gather(*(provider.auths("a.reg.io/x", pod(str(n), "robot")) for n in range(3)))
    assert sorted(requested["serviceAccountToken"] for requested in world.requests) == [
        f"token-of-{n}-robot-aud" for n in range(3)
    ]


async def test_pods_without_an_account() -> None:
    world = World()
    provider = world.provider(token_attributes=tokens(require=False))
    auths, account = await provider.auths("a.reg.io/x", pod("u1"))
    assert auths
    assert account is None
    assert "serviceAccountToken" not in world.requests[0]


async def test_failures() -> None:
    world = World(echo=True)
    provider = world.provider(token_attributes=tokens())
    with pytest.raises(ProviderError, match="holds the service account token itself") as caught:
        await provider.auths("a.reg.io/x", pod("u1", "robot"))
    assert "token-of" not in str(caught.value)
    world.account_error = AccountError("forbidden")
    with pytest.raises(ProviderError, match="service account ns/robot: forbidden"):
        await provider.auths("a.reg.io/x", pod("u1", "robot"))
    assert world.counted == [("login", False)]


async def test_all_providers_in_order(caplog: pytest.LogCaptureFixture) -> None:
    world, broken = World(), World(error=ProgramFailed("exit status 1"))
    plugins = Plugins(
        [
            world.provider("first"),
            broken.provider("broken"),
            world.provider("account", token_attributes=tokens()),
            world.provider("elsewhere", match_images=("other.io",)),
        ]
    )
    with caplog.at_level(logging.WARNING):
        keyring = await plugins.keyring("a.reg.io/x", pod("u1", "robot"))
    found = keyring.lookup("a.reg.io/x")
    assert [(c.username, c.source) for c in found] == [
        ("first", None),
        ("account", AccountSource("uid-robot", "ns", "robot")),
    ]
    assert [record.__dict__["provider"] for record in caplog.records] == ["broken"]
    assert broken.counted == [("broken", True)]
    assert asyncio.get_running_loop().time() == pytest.approx(1), "called at the same time"
    assert (await plugins.keyring("no.io/x", pod())).lookup("no.io/x") == []


# Credential providers created from flags.

CONFIG = "--image-credential-provider-config"
BIN_DIR = "--image-credential-provider-bin-dir"


def test_flags(tmp_path: Path) -> None:
    provider = {
        "name": "login",
        "matchImages": ["reg.io"],
        "defaultCacheDuration": "0s",
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
    }
    file = tmp_path / "config.yaml"
    document = {"apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig"}
    file.write_text(json.dumps({**document, "providers": [provider]}))
    program = tmp_path / "login"
    metrics = Metrics()

    def made(config: str, bin_dir: str) -> Any:
        flags = NodeFlags(
            image_credential_provider_config=config, image_credential_provider_bin_dir=bin_dir
        )
        return providers_from_flags(
            default_settings(), flags, cast(Any, None), metrics.credential_providers
        )

    def wrong(config: str, bin_dir: str) -> str:
        with pytest.raises(ConfigError) as caught:
            made(config, bin_dir)
        (problem,) = caught.value.problems
        return str(problem)

    assert wrong(str(file), "") == f"{BIN_DIR}: is needed with {CONFIG}"
    assert wrong("", str(tmp_path)) == f"{CONFIG}: is needed with {BIN_DIR}"
    expected = f"providers[login].name is login: must be a program in {tmp_path} ({BIN_DIR})"
    assert wrong(str(file), str(tmp_path)) == expected
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert made(str(file), str(tmp_path))
    assert b'kubelet_credential_provider_config_info{hash="sha256:' in metrics.render()
