"""A CSI driver for tests: directories and loop devices of this machine, over a unix socket.

It conforms to the specification (csi-sanity passes) unless a fault is set: see :mod:`.faults`. It
runs in a test's own process (:mod:`.running`) or alone: ``python -m tests.csi_driver --help``.
Needs root for mounts.
"""
