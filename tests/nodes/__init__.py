"""The agent on virtual nodes: machines with systemd as process 1 and cgroup v2."""
