"""Device plugins: the devices of a node, the containers that have them, and what these get.

``model``, ``pick`` and ``checkpoint`` decide (pure). ``plugin`` calls one plugin, plugins register
with ``registration``, and ``device_manager`` assigns devices to containers. Source:
docs/reference/behaviour-resources.md, rm, rn, ro, rp, rx.
"""
