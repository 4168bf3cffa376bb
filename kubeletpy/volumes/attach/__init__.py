"""Attachment by a controller: what this node tells it, and when a volume counts as attached."""
