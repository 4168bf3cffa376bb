"""Credentials with which the agent joins, and the error when there are none."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from kubeletpy.agent.launch.identity import join, wire_format
from kubeletpy.config import NodeFlags, default_settings
from kubeletpy.kubeapi.client import JSON_FORMAT
from kubeletpy.kubeapi.kubeconfig import KubeconfigError
from kubeletpy.kubeapi.protobuf_format import ProtobufFormat
from kubeletpy.kubeapi.protocol import PODS
from kubeletpy.metrics.registry import Metrics


async def test_without_credentials_both_kubeconfigs_are_named(tmp_path: Path) -> None:
    """The node was off for longer than its certificate lived, and kubeadm removed the token."""
    flags = NodeFlags(
        kubeconfig=str(tmp_path / "kubelet.conf"),
        bootstrap_kubeconfig=str(tmp_path / "bootstrap-kubelet.conf"),
        cert_dir=str(tmp_path / "pki"),
    )
    settings = default_settings(rotateCertificates=True)
    with pytest.raises(KubeconfigError) as caught:
        async with AsyncExitStack() as stack:
            await join(settings, flags, "node1", Metrics(), stack)
    stated = str(caught.value)
    assert f"{tmp_path}/kubelet.conf can't be used (kubeconfig " in stated
    assert f"the bootstrap kubeconfig: kubeconfig {tmp_path}/bootstrap-kubelet.conf: " in stated


async def test_requests_have_the_configured_content_type() -> None:
    assert await wire_format(default_settings().content_type) is JSON_FORMAT
    other = default_settings(contentType="application/cbor")
    assert await wire_format(other.content_type) is JSON_FORMAT
    requested = default_settings(contentType="application/vnd.kubernetes.protobuf")
    form = await wire_format(requested.content_type)
    assert isinstance(form, ProtobufFormat)
    assert form.headers(PODS)
