"""The placement of containers on the machine: CPUs, memory, and NUMA nodes near their devices.

Providers of resources (devices, CPUs, memory) name the NUMA nodes that suit them; one pure merge
picks the nodes, and then each provider books. Devices and DRA have packages of their own; here
they are only providers.
"""
