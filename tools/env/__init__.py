"""The test environment of up.sh, the integration tests and the bench.

Starts real things on this machine (containerd, an image registry, Prometheus), makes images
without a registry, fetches Debian packages beside the installed ones, and removes all of it again.
Standard library only, except `cri.py` (grpcio), so that up.sh can use it at once.

It must never touch what it did not make, change the machine's mounts or cgroup layout, or install
a package over another. Command line: `python -m tools.env --help`.
"""
