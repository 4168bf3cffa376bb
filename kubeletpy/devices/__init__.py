"""Device plugins: which devices there are, who has which, and what containers get of them.

``state``, ``pick``, ``hints``, ``given``, ``checkpoint`` and ``on_node`` decide (pure); ``plugin``
talks to one plugin, ``kubelet_socket`` and ``registry`` are where plugins register, ``manager``
brings them together. Source: docs/reference/behaviour-resources.md, rm, rn, ro, rp, rx.
"""
