"""Credential providers created from flags."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from kubeletpy.config import ConfigError, NodeFlags, default_settings
from kubeletpy.images.providers.provider import providers_from_flags
from kubeletpy.metrics.registry import Metrics

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
