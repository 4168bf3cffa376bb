"""Device plugins: which devices exist, which container has which, and what it gets with them.

``model``, ``pick`` and ``checkpoint`` decide (pure); ``plugin`` calls one plugin, plugins register
with ``registration``, and ``device_manager`` assigns devices to containers. Source:
docs/reference/behaviour-resources.md, rm, rn, ro, rp, rx.
"""
