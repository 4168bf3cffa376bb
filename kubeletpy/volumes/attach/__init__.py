"""Attachment by a controller: what this node reports, and when a volume counts as attached."""
