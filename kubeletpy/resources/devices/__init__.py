"""Device plugins: which devices exist, which container has which, and what it gets with them.

``state``, ``pick``, ``hints``, ``given``, ``checkpoint`` and ``on_node`` decide (pure); ``plugin``
talks to one plugin, plugins register with ``kubelet_socket`` and ``registry``, ``device_manager``
brings them together. Source: docs/reference/behaviour-resources.md, rm, rn, ro, rp, rx.
"""
