"""Dynamic resource allocation on the node: claims of pods are prepared by DRA drivers.

The scheduler allocates a claim; here its drivers make the devices ready (``manager``) before the
pod's sandbox, and give them back when no pod uses the claim any more. What containers get are names
of CDI devices.
"""
