"""What a pod may have of its node: admission, allocation, placement, cgroups, devices and
claims."""
