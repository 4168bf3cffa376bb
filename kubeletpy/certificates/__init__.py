"""The node's certificates: asked for by requests to the cluster (CSRs), kept on disk, renewed."""
