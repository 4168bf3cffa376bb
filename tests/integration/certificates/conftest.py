"""Machines that join a cluster as kubeadm prepares them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.certificates.joining import JoiningNode
from tools.env.containerd import Containerd
from tools.env.kubectl import Kubectl
from tools.env.sweep import unmount


@pytest.fixture
def joining(
    session_containerd2: Containerd, kubectl_versions: dict[str, Kubectl]
) -> Iterator[JoiningNode]:
    """A machine with kubeadm's files and a bootstrap token; neither API nor agent is started."""
    directory = Path(tempfile.mkdtemp(prefix="kpj-", dir="/tmp"))
    node = JoiningNode(directory, session_containerd2, kubectl_versions)
    yield node
    left = node.remove()
    unmount(directory)
    shutil.rmtree(directory)
    assert left == []
