"""What a cluster's controllers do that one node needs."""
