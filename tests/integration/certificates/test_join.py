"""A machine joins with kubeadm's files: bootstrap, Ready, kills in between, rotation."""

from __future__ import annotations

import re
import stat

import pytest
import yaml

from kubeletpy.base.host import x509
from kubeletpy.node.certificates import request
from tests.integration.certificates.joining import JoiningNode
from tests.integration.node.pods import container, pod
from tests.integration.node.seen import container_status
from tools.env.process import CommandError


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
    # a restart uses the certificate that is there
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


def test_killed_between_request_and_approval(joining: JoiningNode) -> None:
    joining.token_groups = ""
    joining.prepare()
    joining.start_agent()
    joining.until(joining.requests, "a request")
    joining.kill()
    joining.start_agent()
    joining.until(
        lambda: any("earlier certificate request" in line for line in joining.log_lines()),
        "the earlier request found again",
    )
    assert not joining.kubelet_conf.exists()
    (pending,) = joining.requests()
    joining.kubectl("certificate", "approve", pending["metadata"]["name"])
    joining.wait_ready()
    assert len(joining.requests()) == 1


SERVING = request.SERVING_SIGNER


def test_the_client_certificate_is_renewed_again_and_again(joining: JoiningNode) -> None:
    # a renewal must fit into a tenth of it, also on a busy machine
    joining.api.certificate_lifetime = 20.0
    joining.prepare()
    joining.start_agent()
    joining.wait_ready()
    joining.api.create("namespaces", "", {"metadata": {"name": "rotating"}})
    joining.apply(pod("stays", container()), namespace="rotating")
    before = container_status(joining.wait_running("rotating", "stays"))
    # two lives of a certificate later
    joining.until(lambda: len(joining.requests()) >= 3, "three requests", timeout=60)
    selves = {r["spec"]["username"] for r in joining.requests()[1:]}
    assert selves == {f"system:node:{joining.name}"}
    joining.apply(pod("comes", container()), namespace="rotating")
    joining.wait_running("rotating", "comes")
    assert container_status(joining.pod("rotating", "stays")) == before
    # the watches went on: nothing was listed again, nobody lost touch
    text = joining.agent.log.read_text()
    stated = [line for line in text.splitlines() if line.startswith("W")]
    # a start logs what the machine does not allow, and kubeadm's deprecated flags
    expected = (" at_start.py:", '] "flag --')
    assert [s for s in stated if not any(part in s for part in expected)] == []
    assert joining.condition("Ready")["status"] == "True"
    dated = [p for p in joining.pki.iterdir() if re.search(r"client-\d{4}", p.name)]
    assert len(dated) <= 3
    for name in ("stays", "comes"):
        joining.kubectl("delete", "pod", name, "--grace-period=1", namespace="rotating")


def test_serving_certificate(joining: JoiningNode) -> None:
    joining.kubelet_config = {"serverTLSBootstrap": True}
    joining.prepare()
    joining.start_agent()
    joining.wait_ready()
    joining.api.create("namespaces", "", {"metadata": {"name": "serving"}})
    joining.apply(pod("talks", container(script="echo hello; sleep 1000")), namespace="serving")
    joining.wait_running("serving", "talks")
    joining.until(lambda: joining.requests(SERVING), "a request for a serving certificate")
    with pytest.raises(CommandError, match="error dialing backend"):
        joining.kubectl("logs", "talks", namespace="serving")
    (requested,) = joining.requests(SERVING)
    joining.kubectl("certificate", "approve", requested["metadata"]["name"])
    joining.until((joining.pki / "kubelet-server-current.pem").exists, "a serving certificate")
    assert "hello" in joining.kubectl("logs", "talks", namespace="serving")
    table = joining.kubectl("get", "csr")
    assert len(re.findall(r"Approved,Issued", table)) == 2
    names = x509.read_certificate((joining.pki / "kubelet-server-current.pem").read_bytes()).names
    assert joining.name in names.dns_names
    assert names.ip_addresses
    joining.kubectl("delete", "pod", "talks", "--grace-period=1", namespace="serving")
