"""Metrics: the agent's Prometheus registry and its scrape, using the kubelet's names."""
