"""The DNS server of a cluster: the objects of CoreDNS in kube-system (pure).

Names and labels are those that kubeadm gives them; tests search for the label of its pods.
"""

from __future__ import annotations

from kubeletpy.base.api.types import JSON
from tools.conformance.images import COREDNS

DNS_ADDRESSES = "10.96.0.10", "fd00:96::a"
"""The Service's, of IPv4 or IPv6; they are in the ranges of the cluster's Services."""
DOMAIN = "cluster.local"
_NAME, _NAMESPACE = "coredns", "kube-system"
_LABELS = {"k8s-app": "kube-dns"}
_ROLE = f"system:{_NAME}"
_READY, _HEALTH = 8181, 8080
COREFILE = f"""\
.:53 {{
    errors
    health
    ready
    kubernetes {DOMAIN} in-addr.arpa ip6.arpa {{
        pods insecure
        ttl 30
    }}
    cache 30
}}
"""


def dns_objects(address: str) -> list[JSON]:
    """The objects: of an account that lists Services, and of the server and its Service."""
    return [
        _object("v1", "ServiceAccount", _NAME),
        _object("v1", "ConfigMap", _NAME, data={"Corefile": COREFILE}),
        *_role(),
        _object(
            "apps/v1",
            "Deployment",
            _NAME,
            spec={
                "replicas": 2,
                "selector": {"matchLabels": _LABELS},
                "template": {"metadata": {"labels": _LABELS}, "spec": _pod()},
            },
        ),
        _object(
            "v1",
            "Service",
            "kube-dns",
            spec={
                "clusterIP": address,
                "selector": _LABELS,
                "ports": [
                    {"name": "dns", "port": 53, "protocol": "UDP"},
                    {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
                ],
            },
        ),
    ]


def _role() -> list[JSON]:
    reads = ["list", "watch"]
    core = ["endpoints", "services", "pods", "namespaces"]
    group = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": [""], "resources": core, "verbs": reads},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": reads},
    ]
    return [
        _object(f"{group}/v1", "ClusterRole", _ROLE, rules=rules),
        _object(
            f"{group}/v1",
            "ClusterRoleBinding",
            _ROLE,
            roleRef={"apiGroup": group, "kind": "ClusterRole", "name": _ROLE},
            subjects=[{"kind": "ServiceAccount", "name": _NAME, "namespace": _NAMESPACE}],
        ),
    ]


def _pod() -> JSON:
    """The pod: on each node one, whatever taints tests give the nodes."""
    container = {
        "name": _NAME,
        "image": COREDNS,
        "imagePullPolicy": "Never",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": [{"containerPort": 53, "protocol": each} for each in ("UDP", "TCP")],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": _READY}},
        "livenessProbe": {"httpGet": {"path": "/health", "port": _HEALTH}, "failureThreshold": 10},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns"}],
    }
    return {
        "serviceAccountName": _NAME,
        "priorityClassName": "system-cluster-critical",
        "dnsPolicy": "Default",
        "tolerations": [{"operator": "Exists"}],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": _LABELS},
            }
        ],
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": _NAME}}],
    }


def _object(version: str, kind: str, name: str, **more: object) -> JSON:
    metadata = {"name": name, "labels": _LABELS}
    if not kind.startswith("Cluster"):
        metadata["namespace"] = _NAMESPACE
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}
