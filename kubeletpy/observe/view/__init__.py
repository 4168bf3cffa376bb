"""Views of a node: drawings of timelines, and a page on loopback."""
