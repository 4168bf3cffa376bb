"""Takes over the node of a running kubelet, watches it, and gives it back.

The kubelet's own systemd unit starts either program: a drop-in decides which one. At any moment the
unit runs one of the two, never both.
"""
