"""Kubernetes' end-to-end tests of a node, with this agent or with the Go kubelet as the node."""
