"""Node labels in the Kubernetes domains. Must stay data."""

SYNCED = (
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
)
"""Labels that a kubelet keeps up to date on its node."""

OWN = frozenset((*SYNCED, "node.kubernetes.io/windows-build"))
"""Labels that a kubelet may set: k8s.io/kubelet/pkg/apis, IsKubeletLabel."""
