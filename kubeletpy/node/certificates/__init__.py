"""The node's certificates: requested from the cluster (CSRs), kept on disk, renewed."""
