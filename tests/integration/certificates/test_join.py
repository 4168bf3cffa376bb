"""A machine joins with kubeadm's files: bootstrap, Ready, rotation, kills in between."""

from __future__ import annotations

import stat

import yaml

from tests.integration.certificates.joining import JoiningNode
from tests.integration.node.pods import container, pod


def test_a_machine_joins_with_a_bootstrap_token(joining: JoiningNode) -> None:
    joining.prepare()
    joining.start_agent()
    joining.wait_ready()
    table = joining.kubectl("get", "csr").splitlines()
    assert len(table) == 2
    name, _age, signer, who, _, condition = table[1].split()
    assert name.startswith("node-csr-")
    assert signer == "kubernetes.io/kube-apiserver-client-kubelet"
    assert who == "system:bootstrap:abcdef"
    assert condition == "Approved,Issued"
    written = yaml.safe_load(joining.kubelet_conf.read_text())
    assert written["users"][0]["user"]["client-certificate"] == str(joining.client_pem)
    assert written["clusters"][0]["cluster"]["server"] == joining.api.endpoint.url
    for file in (joining.kubelet_conf, joining.client_pem):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert joining.client_pem.is_symlink()
    assert not (joining.pki / "kubelet-client.key.tmp").exists()
    # what kubectl makes of the kubeconfig that was written: the node, and nothing it may not have
    joining.kubectl("--kubeconfig", joining.kubelet_conf, "get", "node", joining.name)


def test_a_restart_uses_the_certificate_that_is_there(joining: JoiningNode) -> None:
    joining.prepare()
    joining.start_agent()
    joining.wait_ready()
    (joining.kubernetes / "bootstrap-kubelet.conf").unlink()
    before = joining.client_pem.readlink()
    joining.kill()
    joining.start_agent()
    joining.api.create("namespaces", "", {"metadata": {"name": "again"}})
    joining.apply(pod("works", container(), nodeName=joining.name), namespace="again")
    joining.wait_running("again", "works")
    assert joining.client_pem.readlink() == before
    assert len(joining.requests()) == 1
    joining.kubectl("delete", "pod", "works", "--grace-period=1", namespace="again")
