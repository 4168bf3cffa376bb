"""The part of a cluster's controllers that one node needs."""
