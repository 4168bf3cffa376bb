"""Images: see to it that a container's image is on the node, and that unused ones go.

May know ``remote``, ``pods``, ``events`` and ``api``; must never know the runtime manager.
"""
