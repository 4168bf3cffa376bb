"""Virtual nodes: machines with systemd as process 1 and cgroup v2, made from Debian packages alone.

:mod:`.image` builds a root file system, cached by the hash of what it is made of. :mod:`.uml` boots
it under user-mode Linux (packages ``user-mode-linux`` and ``mmdebstrap``), :mod:`.qemu` with
Debian's kernel under QEMU (packages ``qemu-system-x86``, ``qemu-utils`` and ``kmod``, too). The
product never imports this. ``python -m tools.lab`` boots a node and takes commands.
"""
