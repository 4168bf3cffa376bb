"""Versions: this project's (both distributions read it from here) and Kubernetes'. Pure."""

VERSION = "0.1.0"
"""Version of kubeletpy."""

KUBERNETES = "1.36.0"
"""The Kubernetes version whose kubelet this agent stands in for: docs/reference/README.md describes
this version, and docs/upgrading-kubernetes.md says what to do when it changes."""

KUBELET = f"v{KUBERNETES}+kubeletpy.{VERSION}"
"""The kubelet version that a node reports: not below the release (semantic versions sort anything
with a - before it), with our own version appended."""

KUBERNETES_MINOR = KUBERNETES.rpartition(".")[0]
"""Major and minor only, as in user agents."""
