"""Virtual nodes: machines with systemd as process 1 and cgroup v2, made from Debian packages alone.

:mod:`.image` builds a root file system, cached by the hash of what it is made of; :mod:`.uml` boots
it under user-mode Linux (packages ``user-mode-linux`` and ``mmdebstrap``). The product never
imports this. ``python -m tools.lab`` boots a node and takes commands.
"""
