"""Certificates that live for seconds: renewed under way, without a watch or a pod lost."""

from __future__ import annotations

import re
import ssl
import time
import urllib.request

import pytest

from kubeletpy.base.host import x509
from kubeletpy.base.host.files import KeyPair, write_private
from kubeletpy.base.host.pki import Names
from kubeletpy.node.certificates import request
from tests.integration.certificates.joining import JoiningNode
from tests.integration.node.pods import container, pod
from tests.integration.node.seen import container_status
from tools.env.process import CommandError

SERVING = request.SERVING_SIGNER
ADDRESS = ".status.addresses[?(@.type=='InternalIP')].address"


def test_the_client_certificate_is_renewed_again_and_again(joining: JoiningNode) -> None:
    # a renewal must fit into a tenth of it, also on a busy machine
    joining.api.certificate_lifetime = 20.0
    joining.prepare()
    joining.start_agent()
    joining.wait_ready()
    joining.api.create("namespaces", "", {"metadata": {"name": "rotating"}})
    joining.apply(pod("stays", container()), namespace="rotating")
    before = container_status(joining.wait_running("rotating", "stays"))
    # three lives of a certificate later
    joining.until(lambda: len(joining.requests()) >= 4, "four requests", timeout=75)
    selves = {r["spec"]["username"] for r in joining.requests()[1:]}
    assert selves == {f"system:node:{joining.name}"}
    joining.apply(pod("comes", container()), namespace="rotating")
    joining.wait_running("rotating", "comes", timeout=10)
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


@pytest.mark.parametrize("rotates", [False, True])
def test_another_program_renews_the_certificate(joining: JoiningNode, rotates: bool) -> None:
    joining.kubelet_config = {"rotateCertificates": rotates}
    joining.prepare()
    joining.start_agent()
    joining.wait_ready()
    assert ttl(joining) > 7200
    key = x509.new_key()
    names = request.client_names(joining.name)
    certificate = x509.sign_request(
        x509.new_request(key, names),
        KeyPair.named(joining.directory / "api" / "pki", "ca"),
        names,
        usages=request.USAGES[request.CLIENT_SIGNER],
        not_before=time.time(),
        not_after=time.time() + 3600,
    )
    made = joining.pki / "by-hand.pem"
    write_private(made, certificate + key)
    link = joining.pki / "link"
    link.symlink_to(made)
    link.replace(joining.client_pem)
    joining.until(lambda: ttl(joining) < 7200, "the new certificate in use", timeout=10)
    joining.api.create("namespaces", "", {"metadata": {"name": "renewed"}})
    joining.apply(pod("comes", container()), namespace="renewed")
    joining.wait_running("renewed", "comes")
    assert len(joining.requests()) == 1
    joining.kubectl("delete", "pod", "comes", "--grace-period=1", namespace="renewed")


def test_a_kubeconfig_that_is_replaced_counts_at_once(joining: JoiningNode) -> None:
    joining.kubelet_config = {"rotateCertificates": False}
    joining.prepare()
    joining.start_agent()
    joining.wait_ready()
    token = joining.api.endpoint.node_kubeconfig.read_text()
    write_private(joining.kubelet_conf, token)
    joining.until(
        lambda: any("credentials have changed" in line for line in joining.log_lines()),
        "taken",
        timeout=10,
    )
    joining.api.create("namespaces", "", {"metadata": {"name": "replaced"}})
    joining.apply(pod("comes", container()), namespace="replaced")
    joining.wait_running("replaced", "comes")
    joining.kubectl("delete", "pod", "comes", "--grace-period=1", namespace="replaced")


def ttl(node: JoiningNode) -> float:
    """Seconds for which the client certificate is still valid, from the agent's metrics."""
    url = f"http://127.0.0.1:{node.health_port}/metrics"
    with urllib.request.urlopen(url, timeout=5) as answer:
        text = answer.read().decode()
    (line,) = re.findall(r"^kubelet_certificate_manager_client_ttl_seconds (.*)$", text, re.M)
    return float(line)


def test_a_kubelets_certificate_without_the_address_is_replaced(joining: JoiningNode) -> None:
    pair = KeyPair.named(joining.pki, "kubelet")
    authority = KeyPair.named(joining.directory, "kubelet-ca")
    joining.prepare()
    x509.make_authority(authority, f"{joining.name}-ca@1")
    names = Names(f"{joining.name}@1", dns_names=(joining.name,))
    x509.make_signed(pair, authority, names)
    joining.start_agent()
    joining.wait_ready()
    pem = ssl.get_server_certificate(("127.0.0.1", joining.port), timeout=10)
    served = x509.read_certificate(pem.encode())
    ip = joining.kubectl("get", "node", joining.name, "-o", f"jsonpath={{{ADDRESS}}}")
    assert (served.names.dns_names, served.names.ip_addresses) == ((joining.name,), (ip.strip(),))
    assert any(f"lacks the address {ip.strip()}" in line for line in joining.log_lines())


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
