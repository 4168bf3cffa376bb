"""The resources of a node that a pod may have.

Admission, allocation, placement, cgroups, devices, claims and the plugins that provide them.
"""
