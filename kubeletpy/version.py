"""The versions: this project's (both distributions take it from here) and Kubernetes'. Pure."""

VERSION = "0.1.0"
"""Version of kubeletpy."""

KUBERNETES = "1.36.0"
"""The Kubernetes whose kubelet this agent stands for: docs/reference/README.md is of this version,
and docs/upgrading-kubernetes.md says what to do when another is written here."""

KUBERNETES_MINOR = KUBERNETES.rpartition(".")[0]
"""Major and minor alone, as user agents say it."""
