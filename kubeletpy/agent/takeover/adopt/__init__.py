"""Takes over the node of a running kubelet, watches it, and gives it back.

:mod:`.adoption` is the front door. The kubelet's own systemd unit starts either program: a drop-in
decides which one. At any moment the unit runs one of the two, never both.
"""
