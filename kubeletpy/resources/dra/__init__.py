"""Dynamic resource allocation on the node: claims of pods are prepared by DRA drivers.

The scheduler allocates a claim; here its drivers make the devices ready (``claim_manager``) before
the pod's sandbox, and take them back when no pod uses the claim any more. Containers get names of
CDI devices.
"""
