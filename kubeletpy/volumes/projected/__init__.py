"""Sources of projected volumes: service account tokens, trust bundles, pod certificates."""
