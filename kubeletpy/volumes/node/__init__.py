"""The volumes of a node's pods: what pod workers call."""
