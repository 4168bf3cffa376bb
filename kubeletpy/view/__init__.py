"""What a node does, to look at: drawings of timelines, and a page on loopback."""
