"""A node whose control plane is its own static pods, with manifests as kubeadm writes them.

Source: cmd/kubeadm/app/phases/controlplane, phases/etcd and util/staticpod of Kubernetes 1.37.2.
Ports and directories are the test's own, and the programs are in images of our names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from kubeletpy.base.api.types import JSON
from kubeletpy.library.control_plane import SERVER_NAMES, Authority
from tests.cluster.kubelet_node import KubeletNode, kubelets_own_directory
from tests.cluster.node import own_runtime
from tools.conformance.images import libraries
from tools.control_plane.plane import READY_S, SERVICES, ControlPlane
from tools.env.containerd import Containerd
from tools.env.cri import RawRuntime
from tools.env.debian import unpacked
from tools.env.images import Image, write_archive
from tools.env.ports import free_port
from tools.env.process import CommandError, run
from tools.env.waiting import wait_until

NAMESPACE = "kube-system"
API_SERVER, CONTROLLERS, SCHEDULER = COMPONENTS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
)
ETCD = "etcd"
CERTIFICATES = (
    *("/etc/ssl/certs", "/etc/ca-certificates"),
    *("/usr/local/share/ca-certificates", "/usr/share/ca-certificates"),
)
"""Directories of the machine that kubeadm mounts, all but the first one if they exist."""


class StaticPlane(ControlPlane):
    """The manifests, images and certificates of a control plane; it starts no process itself."""

    def __init__(self, directory: Path, programs: Path, node_name: str) -> None:
        super().__init__(directory, programs)
        self._node_name = node_name
        self._ports = {name: free_port() for name in (ETCD, CONTROLLERS, SCHEDULER)}
        pki = self.authority.directory
        self._front = Authority(pki / "front-proxy")
        self._front.issue("client", "front-proxy-client")
        self._of_etcd = Authority(pki / "etcd")
        for name in ("server", "peer"):
            names = ("localhost", "127.0.0.1", node_name)
            self._of_etcd.issue(name, node_name, names=names, both=True)
        self._of_etcd.issue("apiserver-client", "kube-apiserver-etcd-client")
        self.authority.issue("apiserver", "kube-apiserver", names=(*SERVER_NAMES, node_name))
        users = {CONTROLLERS: f"system:{CONTROLLERS}", SCHEDULER: f"system:{SCHEDULER}"}
        self._configs = {
            name: self.authority.kubeconfig(name, self.url, user) for name, user in users.items()
        }

    def import_images(self, runtime: Containerd) -> None:
        """Give a runtime the images of the programs, each with one program."""
        etcd = unpacked("etcd-server", "testing") / "usr" / "bin" / ETCD
        for name in (ETCD, *COMPONENTS):
            program = etcd if name == ETCD else self.programs.api_server.with_name(name)
            files = {f"usr/local/bin/{name}": (0o755, program.read_bytes())}
            if name == ETCD:  # the only one that is linked dynamically
                for path in libraries(run("ldd", program).splitlines()):
                    files[path.lstrip("/")] = (0o755, Path(path).read_bytes())
            config = {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]}
            image = Image(_image(name), files, folders={"tmp": 0o1777}, config=config)
            archive = write_archive(self.directory / "image.tar", image)
            runtime.import_images(archive)
            archive.unlink()

    def write_manifests(self, directory: Path) -> None:
        """Write the manifests of all four pods."""
        directory.mkdir(parents=True)
        for pod in (self._etcd_pod(), self._api_server(), self._controllers(), self._scheduler()):
            file = directory / f"{pod['metadata']['name']}.yaml"
            file.touch(mode=0o600)
            file.write_text(yaml.safe_dump(pod))

    def _etcd_pod(self) -> JSON:
        pki, name = self._of_etcd.directory, self._node_name
        client, peer = (f"https://127.0.0.1:{port}" for port in (self.etcd_port, self.peer_port))
        metrics = self._ports[ETCD]
        flags = {
            "name": name,
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"{name}={peer}",
            "data-dir": self.directory / "etcd",
            "cert-file": pki / "server.crt",
            "key-file": pki / "server.key",
            "trusted-ca-file": pki / "ca.crt",
            "client-cert-auth": "true",
            "peer-cert-file": pki / "peer.crt",
            "peer-key-file": pki / "peer.key",
            "peer-trusted-ca-file": pki / "ca.crt",
            "peer-client-cert-auth": "true",
            "snapshot-count": "10000",
            "listen-metrics-urls": f"http://127.0.0.1:{metrics}",
            "experimental-initial-corrupt-check": "true",
            "experimental-watch-progress-notify-interval": "5s",
        }
        probes = {
            "livenessProbe": _liveness("HTTP", "/livez"),
            "readinessProbe": _readiness("HTTP", "/readyz"),
            "startupProbe": _startup("HTTP", "/readyz"),
        }
        container = _container(ETCD, flags, metrics, "100m", **probes)
        container["resources"]["requests"]["memory"] = "100Mi"
        return _pod(
            container,
            [_Mount("etcd-certs", pki), _Mount("etcd-data", self.directory / "etcd")],
            {"kubeadm.kubernetes.io/etcd.advertise-client-urls": client},
        )

    def _api_server(self) -> JSON:
        pki, etcd, front = (each.directory for each in (self.authority, self._of_etcd, self._front))
        flags = {
            "advertise-address": "127.0.0.1",
            "allow-privileged": "true",
            "authorization-mode": "Node,RBAC",
            "client-ca-file": pki / "ca.crt",
            "enable-admission-plugins": "NodeRestriction",
            "enable-bootstrap-token-auth": "true",
            "endpoint-reconciler-type": "none",  # no endpoint may be on loopback
            "etcd-cafile": etcd / "ca.crt",
            "etcd-certfile": etcd / "apiserver-client.crt",
            "etcd-keyfile": etcd / "apiserver-client.key",
            "etcd-servers": f"https://127.0.0.1:{self.etcd_port}",
            "kubelet-client-certificate": pki / "kubelet-client.crt",
            "kubelet-client-key": pki / "kubelet-client.key",
            "kubelet-preferred-address-types": "InternalIP,ExternalIP,Hostname",
            "proxy-client-cert-file": front / "client.crt",
            "proxy-client-key-file": front / "client.key",
            "requestheader-allowed-names": "front-proxy-client",
            "requestheader-client-ca-file": front / "ca.crt",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-username-headers": "X-Remote-User",
            "secure-port": self.port,
            "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
            "service-account-key-file": pki / "sa.pub",
            "service-account-signing-key-file": pki / "sa.key",
            "service-cluster-ip-range": SERVICES,
            "tls-cert-file": pki / "apiserver.crt",
            "tls-private-key-file": pki / "apiserver.key",
        }
        probes = {
            "livenessProbe": _liveness("HTTPS", "/livez"),
            "readinessProbe": _readiness("HTTPS", "/readyz"),
            "startupProbe": _startup("HTTPS", "/livez"),
        }
        endpoint = f"127.0.0.1:{self.port}"
        return _pod(
            _container(API_SERVER, flags, self.port, "250m", **probes),
            [*_machines_certificates(), _Mount("k8s-certs", pki, read_only=True)],
            {"kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint": endpoint},
        )

    def _controllers(self) -> JSON:
        pki, config, port = (
            self.authority.directory,
            self._configs[CONTROLLERS],
            self._ports[CONTROLLERS],
        )
        flags = {
            "authentication-kubeconfig": config,
            "authorization-kubeconfig": config,
            "bind-address": "127.0.0.1",
            "client-ca-file": pki / "ca.crt",
            "cluster-name": "kubernetes",
            "cluster-signing-cert-file": pki / "ca.crt",
            "cluster-signing-key-file": pki / "ca.key",
            "controllers": "*,bootstrapsigner,tokencleaner",
            "kubeconfig": config,
            "leader-elect": "true",
            "requestheader-client-ca-file": self._front.ca,
            "root-ca-file": pki / "ca.crt",
            "secure-port": port,
            "service-account-private-key-file": pki / "sa.key",
            "use-service-account-credentials": "true",
        }
        probes = {
            "livenessProbe": _liveness("HTTPS", "/healthz"),
            "startupProbe": _startup("HTTPS", "/healthz"),
        }
        mounts = [
            *_machines_certificates(),
            _Mount("k8s-certs", pki, read_only=True),
            _Mount("kubeconfig", config, "FileOrCreate", read_only=True),
        ]
        return _pod(_container(CONTROLLERS, flags, port, "200m", **probes), mounts)

    def _scheduler(self) -> JSON:
        config, port = self._configs[SCHEDULER], self._ports[SCHEDULER]
        flags = {
            "authentication-kubeconfig": config,
            "authorization-kubeconfig": config,
            "bind-address": "127.0.0.1",
            "kubeconfig": config,
            "leader-elect": "true",
            "secure-port": port,
        }
        probes = {
            "livenessProbe": _liveness("HTTPS", "/livez"),
            "readinessProbe": _readiness("HTTPS", "/readyz"),
            "startupProbe": _startup("HTTPS", "/livez"),
        }
        mounts = [_Mount("kubeconfig", config, "FileOrCreate", read_only=True)]
        return _pod(_container(SCHEDULER, flags, port, "100m", **probes), mounts)


class ControlPlaneNode(KubeletNode):
    """The node that runs it."""

    def wait_for_api(self) -> None:
        """Wait until the API server, which the kubelet starts, is ready."""
        wait_until(
            lambda: self._kubectl.run(self.plane.admin, "get", "--raw=/readyz"),
            "the API server",
            timeout=READY_S,
            interval=0.5,
            retry=(CommandError,),
            give_up=self.agent.died,
        )


@contextmanager
def control_plane_node(
    directory: Path, programs: Path, kubelet: Path
) -> Iterator[ControlPlaneNode]:
    """A node, run by the Go kubelet, that has the control plane of built ``programs``."""
    name = "control-plane"
    with kubelets_own_directory(), own_runtime(directory) as runtime:
        plane = StaticPlane(directory / "p", programs, name)
        plane.import_images(runtime)
        made = ControlPlaneNode(directory / "g", plane, runtime, name, {})
        plane.write_manifests(made.manifests)
        try:
            made.start_kubelet(kubelet)
            yield made
        finally:
            made.stop()
            with RawRuntime(runtime.socket) as raw:
                raw.remove_all()
            made.remove()


class _Mount:
    """A hostPath volume that is mounted at its own path."""

    def __init__(
        self, name: str, path: Path, kind: str = "DirectoryOrCreate", *, read_only: bool = False
    ) -> None:
        self.volume: JSON = {"name": name, "hostPath": {"path": str(path), "type": kind}}
        self.mount: JSON = {"name": name, "mountPath": str(path)}
        if read_only:
            self.mount["readOnly"] = True


def _machines_certificates() -> list[_Mount]:
    first, *more = map(Path, CERTIFICATES)
    found = [_Mount("ca-certs", first, read_only=True)]
    return found + [
        _Mount(str(each).lstrip("/").replace("/", "-"), each, read_only=True)
        for each in more
        if each.is_dir()
    ]


def _pod(
    container: JSON, mounts: Sequence[_Mount], annotations: Mapping[str, str] | None = None
) -> JSON:
    ordered = sorted(mounts, key=lambda each: str(each.mount["name"]))
    name = container["name"]
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "labels": {"component": name, "tier": "control-plane"},
    }
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "containers": [{**container, "volumeMounts": [each.mount for each in ordered]}],
            "hostNetwork": True,
            "priority": 2000001000,
            "priorityClassName": "system-node-critical",
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "volumes": [each.volume for each in ordered],
        },
        "status": {},
    }


def _container(name: str, flags: Mapping[str, object], port: int, cpu: str, **probes: JSON) -> JSON:
    return {
        "name": name,
        "image": _image(name),
        "imagePullPolicy": "IfNotPresent",
        "command": [name, *(f"--{flag}={value}" for flag, value in flags.items())],
        "ports": [{"containerPort": port, "name": "probe-port", "protocol": "TCP"}],
        "resources": {"requests": {"cpu": cpu}},
        **probes,
    }


def _image(name: str) -> str:
    return f"kubeletpy.local/{name}:1"


def _liveness(scheme: str, path: str) -> JSON:
    return _probe(scheme, path, delay=10, failures=8, period=10)


def _readiness(scheme: str, path: str) -> JSON:
    return _probe(scheme, path, delay=0, failures=3, period=1)


def _startup(scheme: str, path: str) -> JSON:
    return _probe(scheme, path, delay=10, failures=24, period=10)


def _probe(scheme: str, path: str, *, delay: int, failures: int, period: int) -> JSON:
    probe: JSON = {
        "failureThreshold": failures,
        "httpGet": {"host": "127.0.0.1", "path": path, "port": "probe-port", "scheme": scheme},
        "periodSeconds": period,
        "timeoutSeconds": 15,
    }
    if delay:
        probe["initialDelaySeconds"] = delay
    return probe
