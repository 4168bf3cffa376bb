"""Metrics: the agent's Prometheus registry and its scrape, under the kubelet's names."""
