"""Takes the node of a kubelet over, and returns it: predictions, and the steps."""
