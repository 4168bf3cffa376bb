"""Images: ensures that a container's image is on the node, and removes unused ones.

May know ``remote``, ``pods``, ``events`` and ``api``; must never know the runtime manager.
"""
