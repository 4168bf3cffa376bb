"""Files of the node's owner, which programs write: kubeconfigs and KubeletConfigurations."""

from __future__ import annotations

import tempfile
from pathlib import Path

from kubeletpy.config.decode import decode, leaves, parse
from kubeletpy.config.problems import ProblemReport
from kubeletpy.kubeapi.kubeconfig import KubeconfigError, read_kubeconfig
from kubeletpy.node.certificates.store import kubeconfig_problem
from tests.fuzz.target import JSON_WORDS, YAML_WORDS, target, text

CONFIG = b"""apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://a:1", certificate-authority: ca.crt}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
users: [{name: u, user: {client-certificate-data: YQ==, client-key-data: YQ==}}]
"""
KUBELET = b"""apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPods: 10
evictionHard: {memory.available: 100Mi}
syncFrequency: 1m
featureGates: {A: true}
"""
_FOLDER = Path(tempfile.mkdtemp(prefix="fuzz-", dir="/dev/shm"))


@target(KubeconfigError, seeds=(CONFIG,), parts=(*YAML_WORDS, b"cluster", b"user", b"context"))
def kubeconfig(data: bytes) -> None:
    """A kubeconfig is read, or its error is reported."""
    path = _FOLDER / "kubeconfig"
    path.write_bytes(data)
    kubeconfig_problem(path, 1.0)
    found = read_kubeconfig(path)
    found.files(), found.certificate_files(), found.inline_certificate()


@target(seeds=(KUBELET,), parts=(*YAML_WORDS, *JSON_WORDS, b"maxPods", b"evictionHard"))
def kubelet_configuration(data: bytes) -> None:
    """All errors are reported, none is raised."""
    try:
        supplied = data.decode()
    except UnicodeDecodeError:
        supplied = text(data)
    report = ProblemReport("file")
    decode(leaves(parse(supplied, report), report), report)
