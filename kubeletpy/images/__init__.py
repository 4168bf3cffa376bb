"""Images: ensures that a container's image is on the node, and removes unused ones.

May import ``remote``, ``pods``, ``events`` and ``api``; must never import the runtime manager.
"""
