"""A real Kubernetes control plane on loopback: its programs are built here and started here."""
