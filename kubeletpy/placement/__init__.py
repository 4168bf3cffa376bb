"""Where on the machine a container runs: which CPUs, which memory, how near to its devices.

Providers of resources (devices, CPUs, memory) say which NUMA nodes suit them; one pure merge picks
the nodes, and each provider then books. Devices and DRA are rooms of their own; this one knows
them only as providers.
"""
