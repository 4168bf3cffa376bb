"""The API server that is under test, with the identities of its clients."""

from __future__ import annotations

import asyncio
import base64
import secrets
import ssl
import threading
import time
from collections.abc import Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import yaml

from kubeletpy.base.host.x509 import new_key, new_request
from kubeletpy.node.certificates.request import client_names
from kubeletpy_up.api import LocalApi
from tests.contract.client import JSON, Client, trusting

T = TypeVar("T")
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SIGNED_S = 20.0


class Server:
    """One API server with clients of each identity, and a namespace for each conversation.

    Needs an administrator's kubeconfig, and a signer of nodes' client certificates. :meth:`clear`
    removes what it makes (two nodes, their requests, namespaces).

    Args:
        kubeconfig: of the administrator.
        directory: for keys and certificates.
    """

    def __init__(self, kubeconfig: Path, directory: Path) -> None:
        self._directory = directory
        self._namespaces: list[str] = []
        self._requests: list[str] = []
        run = secrets.token_hex(3)
        self.node_name, self.other_name = f"contract-a-{run}", f"contract-b-{run}"
        admin, self.authority = self._read(yaml.safe_load(kubeconfig.read_text()))
        self._clients = {
            "admin": admin,
            "nobody": Client(admin.url, trusting(self.authority)),
            "liar": admin.as_bearer("made-up", self.authority),
        }
        self._clients["node"] = self._node(self.node_name)
        self._clients["other"] = self._node(self.other_name)
        for name in (self.node_name, self.other_name):
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
            answer = admin.send("POST", "/api/v1/nodes", node)
            assert answer.code == 201, answer
        self.heartbeat()
        self._clients["account"] = self._account()

    def client(self, who: str) -> Client:
        """An identity: admin, node, other, account, nobody, liar."""
        return self._clients[who]

    def namespace(self, title: str) -> str:
        """A new namespace with its service account."""
        name = f"contract-{title}-{secrets.token_hex(3)}"
        admin = self.client("admin")
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        answer = admin.send("POST", "/api/v1/namespaces", body)
        assert answer.code == 201, answer
        self._namespaces.append(name)
        paths = (f"/api/v1/namespaces/{name}/{each}" for each in _EVERY_NAMESPACE_HAS)
        for path in paths:
            until(lambda path=path: admin.send("GET", path).code == 200, path)
        return name

    def heartbeat(self) -> None:
        """Report both nodes as Ready."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": "True", "reason": "Contract", "message": "test"}
        times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
        for who, name in (("node", self.node_name), ("other", self.other_name)):
            path = f"/api/v1/nodes/{name}"
            patch = {"status": {"conditions": [{**ready, **times}]}}
            strategic = "application/strategic-merge-patch+json"
            answer = self.client(who).send("PATCH", f"{path}/status", patch, content_type=strategic)
            assert answer.code == 200, answer

            def untainted(path: str = path) -> bool:
                return "taints" not in self.client("admin").send("GET", path).body["spec"]

            until(untainted, f"{path} has no taint")

    def clear(self) -> None:
        """Remove what was made."""
        admin = self.client("admin")
        for namespace in self._namespaces:
            pods = f"/api/v1/namespaces/{namespace}/pods"
            for pod in admin.send("GET", pods).body["items"]:
                path = f"{pods}/{pod['metadata']['name']}"
                patch = {"metadata": {"finalizers": None}}
                merge = "application/merge-patch+json"
                admin.send("PATCH", path, patch, content_type=merge)
                admin.send("DELETE", path, {"gracePeriodSeconds": 0})
            admin.send("DELETE", f"/api/v1/namespaces/{namespace}")
        for name in (self.node_name, self.other_name):
            admin.send("DELETE", f"/api/v1/nodes/{name}")
            admin.send(
                "DELETE", f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"
            )
        for name in self._requests:
            admin.send("DELETE", f"{CSRS}/{name}")

    def _read(self, config: JSON) -> tuple[Client, str]:
        """The client of the current context, and the authority's certificate (PEM)."""
        named = {each["name"]: each["context"] for each in config["contexts"]}
        context = named[config["current-context"]]
        cluster = next(c for c in config["clusters"] if c["name"] == context["cluster"])["cluster"]
        user = next(u for u in config["users"] if u["name"] == context["user"])["user"]
        authority = _text(cluster, "certificate-authority")
        trusted = trusting(authority)
        if any(key.startswith("client-certificate") for key in user):
            certificate = _text(user, "client-certificate").encode()
            self._load(trusted, "admin", certificate, _text(user, "client-key").encode())
        return Client(cluster["server"], trusted, user.get("token", "")), authority

    def _load(self, context: ssl.SSLContext, name: str, certificate: bytes, key: bytes) -> None:
        files = self._directory / f"{name}.crt", self._directory / f"{name}.key"
        for file, data in zip(files, (certificate, key), strict=True):
            file.touch(mode=0o600)
            file.write_bytes(data)
        context.load_cert_chain(*files)

    def _node(self, name: str) -> Client:
        """The identity of a node, as the cluster's signer gives it."""
        key = new_key()
        admin = self.client("admin")
        request = {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": f"{name}-client"},
            "spec": {
                "request": base64.b64encode(new_request(key, client_names(name))).decode(),
                "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
                "usages": ["digital signature", "client auth"],
            },
        }
        answer = admin.send("POST", CSRS, request)
        assert answer.code == 201, answer
        path = f"{CSRS}/{name}-client"
        self._requests.append(f"{name}-client")
        made = answer.body
        approved = {"type": "Approved", "status": "True", "reason": "Contract", "message": "test"}
        made.setdefault("status", {})["conditions"] = [approved]
        admin.send("PUT", f"{path}/approval", made)

        def signed() -> str:
            status = admin.send("GET", path).body.get("status", {})
            return str(status.get("certificate", ""))

        context = trusting(self.authority)
        certificate = base64.b64decode(until(signed, f"{path} is signed"))
        self._load(context, name, certificate, key)
        return Client(admin.url, context)

    def _account(self) -> Client:
        """A service account that has no rights."""
        namespace = self.account_namespace = self.namespace("account")
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        answer = self.client("admin").send("POST", path, request)
        assert answer.code == 201, answer
        return self.client("admin").as_bearer(answer.body["status"]["token"], self.authority)


_EVERY_NAMESPACE_HAS = ("serviceaccounts/default", "configmaps/kube-root-ca.crt")


def until(question: Any, what: str, seconds: float = SIGNED_S) -> Any:
    """Repeat a query until its answer is true, and return that."""
    deadline = time.monotonic() + seconds
    while not (answer := question()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.1)
    return answer


def _text(section: JSON, key: str) -> str:
    """A PEM text of a kubeconfig, given as data or as a file."""
    if data := section.get(f"{key}-data"):
        return base64.b64decode(data).decode()
    return Path(section[key]).read_text()


class Embedded:
    """The embedded API on a thread, for a test process."""

    def __init__(self, directory: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        # started once before: a server has only the changes since its start
        before = self._await(self._make(directory))
        self._await(before.start())
        self._await(before.stop())
        self._api = self._await(self._make(directory))
        self.kubeconfig = self._await(self._api.start()).admin_kubeconfig

    async def _make(self, directory: Path) -> LocalApi:
        return LocalApi(directory, "contract", port=0, service_account_volumes=True)

    def close(self) -> None:
        """Stop serving."""
        self._await(self._api.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)
