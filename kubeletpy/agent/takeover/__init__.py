"""Takes the node of a kubelet over, and gives it back: what would happen, and the steps."""
