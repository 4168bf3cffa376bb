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


def run_a_pod(joining: JoiningNode, namespace: str) -> None:
    joining.api.create("namespaces", "", {"metadata": {"name": namespace}})
    joining.apply(pod("works", container(), nodeName=joining.name), namespace=namespace)
    joining.wait_running(namespace, "works")


def test_a_restart_uses_the_certificate_that_is_there(joining: JoiningNode) -> None:
    joining.prepare()
    joining.start_agent()
    joining.wait_ready()
    (joining.kubernetes / "bootstrap-kubelet.conf").unlink()
    before = joining.client_pem.readlink()
    joining.kill()
    joining.start_agent()
    run_a_pod(joining, "again")
    assert joining.client_pem.readlink() == before
    assert len(joining.requests()) == 1
    joining.kubectl("delete", "pod", "works", "--grace-period=1", namespace="again")


def test_the_previous_certificate_replaces_a_broken_one(joining: JoiningNode) -> None:
    joining.prepare()
    joining.start_agent()
    joining.wait_ready()
    (joining.kubernetes / "bootstrap-kubelet.conf").unlink()
    joining.kill()
    earlier = joining.client_pem.resolve()
    broken = joining.pki / "kubelet-client-2099-01-01-00-00-00.pem"
    broken.write_bytes(earlier.read_bytes()[:-100])
    link = joining.pki / "link"
    link.symlink_to(broken)
    link.replace(joining.client_pem)
    joining.start_agent()
    run_a_pod(joining, "mended")
    assert joining.client_pem.resolve() == earlier
    assert len(joining.requests()) == 1
    joining.kubectl("delete", "pod", "works", "--grace-period=1", namespace="mended")


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


def test_approved_while_the_agent_was_dead(joining: JoiningNode) -> None:
    joining.token_groups = ""
    joining.prepare()
    joining.start_agent()
    joining.until(joining.requests, "a request")
    joining.kill()
    (pending,) = joining.requests()
    joining.kubectl("certificate", "approve", pending["metadata"]["name"], version="old")
    joining.until(
        lambda: joining.requests()[0]["status"].get("certificate"), "a signed certificate"
    )
    joining.start_agent()
    joining.wait_ready()
    assert len(joining.requests()) == 1


def test_a_denied_request_is_reported_and_followed_by_another(joining: JoiningNode) -> None:
    joining.token_groups = ""
    joining.prepare()
    joining.start_agent()
    joining.until(joining.requests, "a request")
    denied = joining.requests()[0]["metadata"]["name"]
    joining.kubectl("certificate", "deny", denied)
    joining.until(lambda: len(joining.requests()) == 2, "another request")
    assert any(denied in line and "denied" in line for line in joining.log_lines())
    (other,) = [r["metadata"]["name"] for r in joining.requests() if denied not in str(r)]
    joining.kubectl("certificate", "approve", other)
    joining.wait_ready()
