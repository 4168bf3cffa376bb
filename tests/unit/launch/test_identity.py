"""As whom the agent joins: what it says when there is no way in."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from kubeletpy.config import NodeFlags, default_settings
from kubeletpy.kubeapi.credentials import KubeconfigError
from kubeletpy.launch.identity import join
from kubeletpy.metrics.registry import Metrics


async def test_no_way_in_names_both_kubeconfigs(tmp_path: Path) -> None:
    """A node that was away for longer than its certificate lived: kubeadm removed the token."""
    flags = NodeFlags(
        kubeconfig=str(tmp_path / "kubelet.conf"),
        bootstrap_kubeconfig=str(tmp_path / "bootstrap-kubelet.conf"),
        cert_dir=str(tmp_path / "pki"),
    )
    settings = default_settings(rotateCertificates=True)
    with pytest.raises(KubeconfigError) as caught:
        async with AsyncExitStack() as stack:
            await join(settings, flags, "node1", Metrics(), stack)
    said = str(caught.value)
    assert f"{tmp_path}/kubelet.conf can't be used (kubeconfig " in said
    assert f"the bootstrap kubeconfig: kubeconfig {tmp_path}/bootstrap-kubelet.conf: " in said
